// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/progress_meter.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

#include "bench/config/training_loop.h"
#include "bench/statistics/series.h"

namespace penstock {
namespace {

/// The interval covers the newest steps only: enough to judge, and quick to compute.
constexpr std::size_t kMostSteps = 500;

/// The rate with its interval, from step times: a slow step means a low rate.
statistics::Estimate rate_of(std::span<const double> step_s, double images) {
  const std::size_t count = std::min(step_s.size(), kMostSteps);
  const statistics::Estimate time = statistics::mean_of_series(step_s.last(count));
  statistics::Estimate rate;
  if (!(time.value > 0)) return rate;
  rate = {images / time.value, images / time.high, images / std::max(time.low, 0.0), count};
  return rate;
}

}  // namespace

ProgressMeter::ProgressMeter(const RunConfig& config, Gauges gauges, const Clock& clock)
    : unit_(rate_unit(config)),
      images_(static_cast<double>(config.batch_size * all_devices(config))),
      gauges_(std::move(gauges)),
      clock_(clock),
      began_(clock.now()),
      steps_(config.num_batches) {}

void ProgressMeter::warm_up_begins() {
  const std::lock_guard lock(mutex_);
  phase_ = "warm-up";
}

void ProgressMeter::window_extended(std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  steps_ = steps;
}

void ProgressMeter::window_begins() {
  const std::lock_guard lock(mutex_);
  phase_ = "window";
  steps_done_ = 0;
  step_s_.clear();
}

void ProgressMeter::step(const StepReport& step) {
  const std::lock_guard lock(mutex_);
  ++steps_done_;
  if (step_s_.size() == 2 * kMostSteps) step_s_.erase(step_s_.begin(), step_s_.end() - kMostSteps);
  step_s_.push_back(step.seconds);
}

void ProgressMeter::evaluation_begins(std::int64_t) {
  const std::lock_guard lock(mutex_);
  phase_before_ = std::exchange(phase_, "evaluation");
}

void ProgressMeter::evaluated(const EvaluationReport&) {
  const std::lock_guard lock(mutex_);
  phase_ = phase_before_;
}

Progress ProgressMeter::now() const {
  Progress progress;
  std::vector<double> newest;
  double all_s = 0;
  {
    const std::lock_guard lock(mutex_);
    progress.phase = phase_;
    progress.unit = unit_;
    progress.steps_done = steps_done_;
    progress.steps = steps_;
    newest.assign(step_s_.end() - std::min<std::ptrdiff_t>(kMostSteps, std::ssize(step_s_)),
                  step_s_.end());
  }
  progress.elapsed_s = to_seconds(clock_.now() - began_);
  const std::vector<QueueGauge> queues = gauges_();
  if (!queues.empty()) {
    progress.queue_filled = static_cast<std::int32_t>(queues.front().filled);
    progress.queue_slots = queues.front().slots;
  }
  if (progress.phase != "window") {
    progress.steps_done = progress.steps = 0;
    return progress;
  }
  progress.img_per_s = rate_of(newest, images_);
  for (const double step : newest) all_s += step;
  const std::int64_t steps_left = progress.steps - progress.steps_done;
  if (steps_left > 0 && !newest.empty()) {
    progress.left_s = static_cast<double>(steps_left) * all_s / static_cast<double>(newest.size());
  }
  return progress;
}

Ticker::Ticker(Clock& clock, Nanoseconds period, std::function<void()> tick)
    : thread_([&clock, period, tick = std::move(tick)](const std::stop_token& stop) {
        for (Time due = clock.now() + period; !stop.stop_requested(); due += period) {
          clock.sleep_until(due, stop);
          tick();
          due = std::max(due, clock.now());  // after a delay, do not catch up
        }
      }) {}

}  // namespace penstock
