// SPDX-License-Identifier: Apache-2.0
// The findings of `penstock isolate`: what one feeder costs one trainer, where the cost arises,
// what would remove it, and how sure these answers are. Every report is a view of these findings
// and of the sweep of runs behind them. Times per step are of all devices together, as in step
// tables.
//
// Derives all findings from the measured rows: cost, cause, recommendations, doubts, and the
// verdict in words. A pure function.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/cost.h"
#include "bench/analysis/diagnosis.h"
#include "bench/isolate/delivery.h"
#include "bench/isolate/isolate_plan.h"
#include "bench/isolate/ladder.h"
#include "bench/isolate/noise.h"
#include "bench/isolate/predictions.h"
#include "bench/record/epoch_edges.h"
#include "bench/record/sweep_result.h"
#include "bench/statistics/estimate.h"

namespace penstock::isolate {

/// What was measured: the runs, and what happened around them.
struct Measurement {
  SweepResult sweep;  ///< every run, with its steps
  std::size_t ceiling_row = 0, coupled_row = 0;
  std::optional<std::size_t> supply_row;
  std::optional<std::size_t> waiting_row;  ///< the loader in a loop that waits for each step
  std::size_t blocks = 0;                  ///< in which both the ceiling and the feeder ended well
  std::size_t measured_blocks = 0;  ///< in which every row ran; the first rounds of the sweep
  std::string stopped_because;      ///< "the interval is within 1 %", "the budget of 45 s ended"
  std::vector<BlockNoise> noise;

  const Row& ceiling() const { return sweep.rows[ceiling_row]; }
  const Row& coupled() const { return sweep.rows[coupled_row]; }
};

struct Isolation {
  Measurement measurement;
  std::optional<analysis::InputCostFinding> cost;
  std::optional<statistics::Estimate> supply_img_per_s;
  EpochEdges epochs;  ///< of a loader
  /// The cost in a loop that waits for each step, if the measured loop runs ahead.
  std::optional<analysis::InputCostFinding> cost_if_waiting;
  std::optional<DeliveryFinding> delivery;  ///< of a feeder that receives from other processes
  analysis::Diagnosis diagnosis;
  Predictions predictions;
  std::vector<RungFinding> ladder;            ///< empty unless asked for
  std::optional<VariationFinding> variation;  ///< none unless asked for
  std::optional<Verification> verification;
  std::vector<std::string> verdict;   ///< the answer in sentences, the first is the headline
  std::vector<std::string> warnings;  ///< why the figures may mislead, and what to do; empty: none
};

/// The noise of the blocks that the figures come from, without blocks of a ladder or verification.
std::vector<BlockNoise> noise_of_blocks(const Measurement& measurement);

/// Whether other programs or guests took processor time in most blocks.
bool is_crowded(const Measurement& measurement);

/// Fills in everything that follows from `found.measurement`, and its `blocks`. Unknown results
/// stay empty.
void analyse(Isolation& found, const IsolatePlan& plan);

}  // namespace penstock::isolate
