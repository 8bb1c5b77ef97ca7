// SPDX-License-Identifier: Apache-2.0
// What the stages of a run did in a window, and what timing them cost: from the counters that they
// keep (dataflow/probe.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/runner.h"
#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/probe.h"

namespace penstock {

/// The counters of one stage at one moment, or what lies between two.
struct StageSums {
  std::int64_t items = 0, images = 0, timed_items = 0, bytes = 0;
  std::int64_t cpu_ns = 0, wall_ns = 0;
  WaitTime::Sum wait_in, wait_out;

  StageSums& operator+=(const StageSums& other);
  StageSums& operator-=(const StageSums& other);
};

/// Of every stage that is timed, in the probe's order. `now` is the present.
std::vector<StageSums> stage_sums(const Probe& probe, Time now);

/// Of all but those outside (kOutside). `window` holds the window's sums, in the order of
/// stage_sums. CPU and wall time of a stage none
/// of whose items was timed are 0.
std::vector<StageUse> stage_uses(const Probe& probe, std::span<const StageSums> window);

/// Puts means over the window of what batches told of their time outside into `facts`: see
/// feeders/README.md. Nothing where they told nothing.
void add_outside_times(const Probe& probe, std::span<const StageSums> window,
                       std::map<std::string, double>& facts);

/// CPU time that one of each costs the thread that does it.
struct TimingCost {
  Nanoseconds item{};    ///< counted
  Nanoseconds timing{};  ///< what is more where it is timed as well
  Nanoseconds wait{};
};

/// Finds out on the calling thread, in some milliseconds. The least of many tries.
TimingCost measure_timing_cost(const Clock& clock);

/// All of them, in seconds.
double instrumentation_seconds(const TimingCost& cost, std::span<const StageSums> window);

/// Of a ring that was watched in the window, and is not any more.
QueueUse queue_use(std::string name, const BatchRing& ring);

}  // namespace penstock
