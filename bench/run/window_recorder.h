// SPDX-License-Identifier: Apache-2.0
// Records the measured window of a run: counters and times at both ends of each leg, the steps, the
// rings and the trace. One thread at a time, with every device idle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "bench/run/run_parts.h"
#include "bench/run/run_window.h"
#include "bench/run/runner.h"
#include "bench/run/stage_use.h"
#include "bench/run/step_log.h"
#include "bench/run/step_reporter.h"

namespace penstock {

class WindowRecorder {
 public:
  /// All arguments must outlive the recorder. Call before threads start.
  WindowRecorder(RunParts& parts, StepReporter& reporter, std::vector<std::jthread>& stagers);

  /// Forgets the window before.
  void begin_window() { window_.legs.clear(); }
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
  StepLog* log_ = nullptr;
};

}  // namespace penstock
