// SPDX-License-Identifier: Apache-2.0
// Finds the stage between source and device that is the bottleneck, and the next one. Pure
// functions.
//
// Operational laws (Denning and Buzen 1978): at X images per second, a group of n workers that
// spends D seconds on each image is busy X D / n of its time, and X is at most n / D. The
// bottleneck is the busiest group. The gain from removing the work of one stage is the lowest
// remaining bound over the present rate. Rates without a bottleneck are predicted from computing
// time and from waiting for storage. Waiting for a core is left out, because a thread would not
// wait if another stage left it a core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/analysis/cost.h"

namespace penstock::analysis {

/// One stage between source and device, over all coupled runs.
struct StageFinding {
  std::string name;     ///< "decode", "receive"
  std::string workers;  ///< what runs it: "decode threads", "receiver", "stager", "producer"
  StageRole role = StageRole::other;
  std::int32_t threads = 0;  ///< threads that may run it at once; 0: it is outside this process
  double capacity_img_per_s = 0;   ///< rate if nothing else limited it; 0: not known
  double utilisation_percent = 0;  ///< share of its workers' time spent on this stage
  /// The higher of two shares: the time that its workers work on all their stages; or, if only some
  /// workers may run this stage at once, the time that these work on it.
  double busy_percent = 0;
  double waits_in_percent = 0;   ///< of its workers' time: no input from upstream
  double waits_out_percent = 0;  ///< of its workers' time: no room downstream
  double cpu_us_per_image = 0, wall_us_per_image = 0, bytes_per_image = 0;
  /// Waiting for storage: wall time less computing and less waiting for a core. None: not known,
  /// because the kernel does not report how long threads waited for a core.
  std::optional<double> storage_us_per_image{};
};

struct Diagnosis {
  std::vector<StageFinding> stages;                        ///< upstream first
  std::optional<std::size_t> bottleneck, next_bottleneck;  ///< indices of stages; none: the trainer
  double gain_until_next = 1;          ///< factor in rate if the bottleneck cost nothing
  double instrumentation_percent = 0;  ///< of CPU time in stages, spent on timing them
};

/// The input of a diagnosis: a feeder's coupled runs.
struct DiagnosisInput {
  const Row& coupled;
  const InputCostFinding& cost;
  bool has_producer = false;  ///< batches come from processes outside the run
  /// Other processes computed on the same processors in most blocks. The wall time of a stage then
  /// includes their work (threads are mostly displaced when they call the kernel), so its CPU time
  /// is used instead.
  bool crowded = false;
};

/// Finds the bottleneck. There is none in these cases: the verdict is not that the feeder costs
/// something; steps themselves got longer by more than devices waited; all workers are idle for
/// more than half of their time. If the receiver waits for messages more than it works or waits for
/// room, its producer is the bottleneck, and the producer becomes an additional first stage.
Diagnosis diagnose(const DiagnosisInput& input);

/// Threads of a group of workers: the most that may run any of its stages.
std::int32_t threads_of(const std::vector<StageUse>& stages, std::string_view workers);

/// Shares of the time of some workers, over all their stages, in per cent.
struct WorkersUse {
  double works = 0;
  double waits_in = 0, waits_out = 0;  ///< no input from upstream; no room downstream
};
WorkersUse use_of(const std::vector<StageFinding>& stages, std::string_view workers);

/// The first stage with this role; null: there is none.
const StageFinding* find_stage(const Diagnosis& diagnosis, StageRole role);

/// The work of a stage, as the beginning of a sentence: "JPEG decoding", "The stage 'resize'".
std::string work_of_stage(const StageFinding& stage);

}  // namespace penstock::analysis
