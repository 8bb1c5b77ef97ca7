// SPDX-License-Identifier: Apache-2.0
// The measured window: a series of legs, each with idle devices at both ends. Time between two legs
// does not count.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/record/statistics.h"
#include "bench/run/runner.h"
#include "bench/run/stage_use.h"
#include "bench/run/step_log.h"
#include "trainer/exchange.h"
#include "trainer/metrics.h"

namespace penstock {

/// The counters of a run at a moment between two legs.
struct Snapshot {
  Time time{};
  std::uint64_t published = 0, taken = 0;  ///< batches so far
  double process_cpu_s = 0, staging_cpu_s = 0;
  std::optional<double> core_wait_s{};  ///< of all threads; none: the kernel does not report it
  std::vector<StageSums> stages{};
  ExchangeTimes exchange{};  ///< summed over ranks
  double reserve() const { return static_cast<double>(published) - static_cast<double>(taken); }
};

struct WindowLeg {
  Snapshot begin, end;
  StepLog* log = nullptr;
  std::vector<Leg> ranks;
};

/// Plain values. One thread at a time fills them.
struct RunWindow {
  double outside_reserve = 0;   ///< batches that may be ready outside the rings
  std::vector<WindowLeg> legs;  ///< all except the last one are complete

  /// Steps that every rank has finished.
  std::size_t steps() const;
  double reserve_at_begin() const;
  double reserve_at_end() const;
  /// The sums of every stage over all legs.
  std::vector<StageSums> stages() const;
  /// The reserve before the window and at its end; see statistics.h.
  ReserveUse reserve_use() const;
};

/// Computes steps, rates, reserves, exchange and CPU time of the window.
void summarise(const RunWindow& window, const RunConfig& config, RunResult& result);

}  // namespace penstock
