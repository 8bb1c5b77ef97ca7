// SPDX-License-Identifier: Apache-2.0
// The progress of a run, for an observer in the same process or, as lines of JSON, behind a pipe.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/run/observe/run_listener.h"
#include "bench/statistics/estimate.h"
#include "dataflow/clock.h"

namespace penstock {

struct Progress {
  std::string phase = "starting";  ///< "starting", "warm-up", "window", "evaluation"
  /// In the phase; steps 0: unknown.
  std::int64_t steps_done = 0, steps = 0;
  statistics::Estimate img_per_s;  ///< in the window so far; samples 0: unknown
  std::int32_t queue_filled = 0,
               queue_slots = 0;  ///< of the ring next to the feeder; 0 slots: none
  double elapsed_s = 0;          ///< since the run began
  double left_s = 0;             ///< in the phase, at its rate; 0: unknown
};

/// One line of JSON, without the line end.
std::string to_line(const Progress& progress);
/// Parses a line of to_line; none for other lines.
std::optional<Progress> progress_from_line(std::string_view line);

/// "window 40/100 steps  512.3 img/s +-0.8 %  queue [##-] 2/3  2 s left", in at most `width`
/// columns. Drops parts from the end if the text is too long. With `colour`, an empty queue is red
/// and a full one is green.
std::string progress_text(const Progress& progress, std::size_t width, bool colour);

/// "42 s", "3 min 07 s".
std::string duration_text(double seconds);

/// Forwards each event to several listeners, in order. They must outlive the group.
class ListenerGroup final : public RunListener {
 public:
  void add(RunListener& listener) { listeners_.push_back(&listener); }

  void warm_up_begins() override;
  void window_extended(std::int64_t steps) override;
  void window_begins() override;
  void step(const StepReport& step) override;
  void evaluation_begins(std::int64_t training_step) override;
  void evaluation_step(std::size_t index, double images, double seconds) override;
  void evaluated(const EvaluationReport& report) override;

 private:
  std::vector<RunListener*> listeners_;
};

/// Collects the progress on the thread that reports finished steps, for a thread that queries it a
/// few times a second. Neither thread is measured.
///
/// Thread-safety: `now` from any thread.
class ProgressMeter final : public RunListener {
 public:
  using Gauges = std::function<std::vector<QueueGauge>()>;

  /// `config` is resolved. `now` calls `gauges`. `clock` must outlive the meter.
  ProgressMeter(const RunConfig& config, Gauges gauges, const Clock& clock);

  void warm_up_begins() override;
  void window_extended(std::int64_t steps) override;
  void window_begins() override;
  void step(const StepReport& step) override;
  void evaluation_begins(std::int64_t training_step) override;
  void evaluated(const EvaluationReport& report) override;

  Progress now() const;

 private:
  const double images_;  // per step
  const Gauges gauges_;
  const Clock& clock_;
  const Time began_;
  mutable std::mutex mutex_;
  // All below under mutex_.
  std::string phase_ = "starting", phase_before_;
  std::int64_t steps_done_ = 0, steps_;
  std::vector<double> step_s_;  // the newest ones
};

/// Calls a function at equal intervals, on a separate thread that does nothing else.
class Ticker {
 public:
  /// `clock` must outlive the ticker. The destructor calls `tick` a last time.
  Ticker(Clock& clock, Nanoseconds period, std::function<void()> tick);

 private:
  std::jthread thread_;
};

}  // namespace penstock
