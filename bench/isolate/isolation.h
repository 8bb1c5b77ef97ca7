// SPDX-License-Identifier: Apache-2.0
// What `penstock isolate` measured, and what follows from it: what one feeder costs one trainer,
// where the cost arises, what would remove it, and how sure these answers are. Every report is a
// view of an Isolation, which analyse() derives from a Measurement alone. Times per step are of all
// devices together, as in step tables.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/cost.h"
#include "bench/analysis/diagnosis.h"
#include "bench/isolate/batch_traits.h"
#include "bench/isolate/code_profile.h"
#include "bench/isolate/delivery.h"
#include "bench/isolate/isolate_plan.h"
#include "bench/isolate/ladder.h"
#include "bench/isolate/loader_waits.h"
#include "bench/isolate/noise.h"
#include "bench/isolate/predictions.h"
#include "bench/record/epoch_edges.h"
#include "bench/record/sweep_result.h"
#include "bench/statistics/estimate.h"

namespace penstock::isolate {

/// What was measured, by phase. Rows of all phases are rows of one sweep.
struct Measurement {
  SweepResult sweep;  ///< every run, with its steps
  std::vector<BlockNoise> noise;
  bool interrupted = false;

  // The blocks.
  std::size_t ceiling_row = 0, coupled_row = 0;
  std::optional<std::size_t> supply_row;
  std::optional<std::size_t> waiting_row;  ///< the loader in a loop that waits for each step
  std::size_t measured_blocks = 0;  ///< in which every row ran; the first rounds of the sweep
  std::string stopped_because;      ///< "the interval is within 1 %", "the budget of 45 s ended"

  std::vector<LadderRung> rungs;  ///< empty: no ladder was measured
  std::vector<Setting> settings;  ///< empty: no settings were measured

  std::optional<ProfileRows> profile;  ///< none: no code was profiled
  double without_profile_s = 0;        ///< the budget that a profile needs; 0: none is missing
  double three_blocks_s = 0;           ///< the budget that three blocks need; 0: there was enough

  /// The verification: a recommendation beside the present configuration, in new blocks.
  struct Trial {
    Recommendation tried;
    std::size_t before_row = 0, after_row = 0;
  };
  std::optional<Trial> trial;

  const Row& ceiling() const { return sweep.rows[ceiling_row]; }
  const Row& coupled() const { return sweep.rows[coupled_row]; }
};

struct Isolation {
  Measurement measurement;
  std::size_t blocks = 0;  ///< in which both the ceiling and the feeder ended well
  std::optional<analysis::InputCostFinding> cost;
  std::optional<statistics::Estimate> supply_img_per_s;
  EpochEdges epochs;  ///< of a loader
  /// The cost in a loop that waits for each step, if the measured loop runs ahead.
  std::optional<analysis::InputCostFinding> cost_if_waiting;
  std::vector<RungFinding> ladder;          ///< empty unless it was measured
  std::optional<DeliveryFinding> delivery;  ///< of a feeder that receives from other processes
  analysis::Diagnosis diagnosis;
  LoaderWaits waits;                ///< for a loader of the user's
  BatchTraits traits;               ///< of its batches
  std::optional<CodeProfile> code;  ///< none unless it was profiled
  Predictions predictions;
  std::optional<VariationFinding> variation;  ///< none unless settings were measured
  std::optional<Verification> verification;
  std::vector<std::string> verdict;   ///< the answer in sentences, the first is the headline
  std::vector<std::string> warnings;  ///< why the figures may mislead, and what to do; empty: none
};

/// Would a device of another rate train what it takes or what the feeder supplies alone, whichever
/// is less? Not if batches come at the wrong time, and not unless it is so at the measured rate.
bool supply_decides(const Isolation& found);

/// The noise of the blocks that the figures come from, without blocks of a ladder or verification.
std::vector<BlockNoise> noise_of_blocks(const Measurement& measurement);

/// Whether other programs or guests took processor time in most blocks.
bool is_crowded(const Measurement& measurement);

/// Derives everything that follows from the measurement. Unknown results stay empty. A pure
/// function.
Isolation analyse(const Measurement& measurement, const IsolatePlan& plan);

}  // namespace penstock::isolate
