// SPDX-License-Identifier: Apache-2.0
// Which stage of the way from source to device holds a trainer up, and what comes next. Pure
// functions.
//
// Operational laws (Denning and Buzen 1978): with X images a second, a group of n workers that
// spends D seconds on each image is busy X D / n of its time, and X is at most n / D. The
// bottleneck is the group that is busy most; what removing one stage's work gains is the ratio of
// the least bound that remains to the present rate. What would be without a bottleneck is predicted
// from computing and waiting for storage: a thread that waits for a core would not wait if another
// stage left it one.
#pragma once

#include <optional>
#include <vector>

#include "bench/isolate/isolation.h"

namespace penstock {

struct Diagnosis {
  std::vector<StageFinding> stages;  ///< upstream first
  std::optional<std::size_t> bottleneck, next_bottleneck;
  double gain_until_next = 1;
  double instrumentation_percent = 0;
};

/// What is to be diagnosed: a feeder's coupled runs.
struct Patient {
  const Row& coupled;
  const InputCostFinding& cost;
  bool has_producer = false;  ///< its batches come from processes outside the run
  /// Others computed on the same processors in most blocks. A stage's wall time then tells of them
  /// (threads are mostly displaced where they call the kernel), and CPU time of its work.
  bool crowded = false;
};

/// Nothing is the bottleneck unless the verdict is that the feeder costs something, where steps
/// themselves got longer more than devices waited, and where all workers are idle for more than
/// half of their time: what holds such a feeder up is none of its stages. A feeder that receives,
/// and whose receiver waits for messages more than it works or waits for room, is held up by its
/// producer, which becomes a stage of its own in front of all others.
Diagnosis diagnose(const Patient& patient);

}  // namespace penstock
