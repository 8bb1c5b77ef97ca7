// SPDX-License-Identifier: Apache-2.0
// The measured window: a series of legs, each with idle devices at both ends. Time between two legs
// does not count. analysis/rank_steps.h computes rates and times of steps, stage_uses.h the work of
// the stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "bench/record/statistics.h"
#include "bench/run/observe/child_memory.h"
#include "bench/run/observe/memory_watch.h"
#include "bench/run/run_parts.h"
#include "bench/run/runner.h"
#include "bench/run/stage_uses.h"
#include "bench/run/step_reporter.h"
#include "dataflow/clock.h"
#include "dataflow/probe.h"
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
  std::size_t together = 0;     ///< see RankSteps
  std::vector<WindowLeg> legs;  ///< all except the last one are complete
  MemoryOfProcesses children_before, children_after;  ///< at the window's ends

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

/// Records the window of a run: counters and times at both ends of each leg, the steps, the rings
/// and the trace. One thread at a time, with every device idle.
class WindowRecorder {
 public:
  /// All arguments must outlive the recorder. Call before threads start.
  WindowRecorder(RunParts& parts, StepReporter& reporter, std::vector<std::jthread>& stagers);

  /// Forgets the window before.
  void begin_window() {
    window_.legs.clear();
    memory_.forget();
  }
  /// Batches that are ready now, with those that may be ready outside the rings.
  double reserve() { return snapshot().reserve() + window_.outside_reserve; }
  /// The next leg may have at most this many steps.
  std::int64_t most_steps() const;
  /// `extended_to` is the length of a window that is longer than requested, else 0.
  void begin_leg(std::size_t steps, std::size_t extended_to);
  /// Does nothing if no leg has begun.
  void end_leg();

  /// Of the current leg; null during warm-up. Any rank may read it between its legs.
  StepLog* log() const noexcept { return log_; }
  const RunWindow& window() const noexcept { return window_; }

  /// Adds the condition of the devices from the window's begin to its end.
  void add_condition(RunResult& result) const;
  /// Adds steps, rates, stages and queues. If `data_ended` in the window, no batches are left
  /// outside the rings at its end.
  void add_measurements(RunResult& result, bool data_ended) const;

 private:
  Snapshot snapshot();

  RunParts& parts_;
  StepReporter& reporter_;
  std::vector<std::jthread>& stagers_;
  const TimingCost timing_cost_;
  RunWindow window_;
  bool leg_open_ = false, tracing_ = false;
  MemoryWatch memory_;
  StepLog* log_ = nullptr;
};

}  // namespace penstock
