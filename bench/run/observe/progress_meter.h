// SPDX-License-Identifier: Apache-2.0
// Collects the progress of a run in the process that runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/run/observe/progress.h"
#include "bench/run/observe/run_listener.h"
#include "dataflow/clock.h"

namespace penstock {

/// Forwards each event to several listeners, in order. They must outlive the group.
class ListenerGroup final : public RunListener {
 public:
  void add(RunListener& listener) { listeners_.push_back(&listener); }

  void warm_up_begins() override { tell(&RunListener::warm_up_begins); }
  void window_extended(std::int64_t steps) override { tell(&RunListener::window_extended, steps); }
  void window_begins() override { tell(&RunListener::window_begins); }
  void step(const StepReport& step) override { tell(&RunListener::step, step); }
  void evaluation_begins(std::int64_t step) override {
    tell(&RunListener::evaluation_begins, step);
  }
  void evaluation_step(std::size_t index, double images, double seconds) override {
    tell(&RunListener::evaluation_step, index, images, seconds);
  }
  void evaluated(const EvaluationReport& report) override { tell(&RunListener::evaluated, report); }

 private:
  template <typename Event, typename... Arguments>
  void tell(Event event, const Arguments&... arguments) {
    for (RunListener* listener : listeners_) (listener->*event)(arguments...);
  }

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
  const std::string unit_;  // of the rate
  const double images_;     // per step
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
