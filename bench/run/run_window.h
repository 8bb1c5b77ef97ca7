// SPDX-License-Identifier: Apache-2.0
// What was measured: the legs of a window, each with the devices idle at both ends. What happens
// between two legs counts for nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/runner.h"
#include "bench/stage_use.h"
#include "bench/statistics.h"
#include "bench/step_log.h"
#include "trainer/exchange.h"
#include "trainer/metrics.h"

namespace penstock {

/// The run at one moment between two legs.
struct Snapshot {
  Time time{};
  std::uint64_t published = 0, taken = 0;  ///< batches so far
  double process_cpu_s = 0, staging_cpu_s = 0;
  std::optional<double> core_wait_s{};  ///< of all threads; none: the kernel does not tell
  std::vector<StageSums> stages{};
  ExchangeTimes exchange{};  ///< summed over ranks
  double reserve() const { return static_cast<double>(published) - static_cast<double>(taken); }
};

struct WindowLeg {
  Snapshot begin, end;
  StepLog* log = nullptr;
  std::vector<Leg> ranks;
};

/// Plain values, filled by one thread at a time.
struct RunWindow {
  std::size_t asked = 0;        ///< steps that the configuration asks for
  std::size_t wanted = 0;       ///< steps; more than asked where the window is extended
  double outside_reserve = 0;   ///< batches that may lie ready outside our rings
  std::vector<WindowLeg> legs;  ///< those before the last one are complete

  /// Steps that every rank finished.
  std::size_t steps() const;
  double reserve_at_begin() const;
  double reserve_at_end() const;
  /// What every stage did in all of its legs.
  std::vector<StageSums> stages() const;
  /// What lay ready before it, and at its end; see statistics.h.
  ReserveUse reserve_use() const;
};

/// Steps, rates, reserves, exchange and CPU time of the window.
void summarise(const RunWindow& window, const RunConfig& config, RunResult& result);

}  // namespace penstock
