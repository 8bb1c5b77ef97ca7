// SPDX-License-Identifier: Apache-2.0
// What stages and rings did in the window, and what timing them cost, from the counters of
// dataflow/probe.h and dataflow/ring_monitor.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/record/run_result.h"
#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/probe.h"

namespace penstock {

/// The counters of one stage at a moment, or their difference between two moments.
struct StageSums {
  std::int64_t items = 0, images = 0, timed_items = 0, bytes = 0;
  std::int64_t cpu_ns = 0, wall_ns = 0;
  WaitTime::Sum wait_in, wait_out;

  /// Adds `other`, multiplied by `times`; -1 subtracts it.
  void add(const StageSums& other, std::int64_t times);
};

/// The counters of every timed stage, in the probe's order. `now` is the current time.
std::vector<StageSums> stage_sums(const Probe& probe, Time now);

/// The use of all timed stages except those outside this process. `window` holds the sums of the
/// window, in the order of stage_sums. CPU and wall time are 0 for a stage without timed items.
std::vector<StageUse> stage_uses(const Probe& probe, std::span<const StageSums> window);

/// Adds the times that batches spent outside this process to `facts`, as means over the window: see
/// feeders/remote/messages.md. Adds nothing if the batches carry no times.
void add_outside_times(const Probe& probe, std::span<const StageSums> window,
                       std::map<std::string, double>& facts);

/// CPU time of each operation on the thread that performs it.
struct TimingCost {
  Nanoseconds item{};    ///< counting an item
  Nanoseconds timing{};  ///< additional cost if the item is timed
  Nanoseconds wait{};
};

/// Measures the costs on the calling thread, in a few milliseconds. Takes the minimum of many
/// tries.
TimingCost measure_timing_cost(const Clock& clock);

/// The total cost of timing in the window, in seconds.
double instrumentation_seconds(const TimingCost& cost, std::span<const StageSums> window);

/// Number of parts of a window for mean levels of rings and memory.
inline constexpr std::size_t kWindowParts = 200;

/// The use of a ring that was watched during the window and is no longer watched.
QueueUse queue_use(std::string name, const BatchRing& ring);

}  // namespace penstock
