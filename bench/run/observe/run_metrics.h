// SPDX-License-Identifier: Apache-2.0
// The metrics of a run in Prometheus' text format, version 0.0.4.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "bench/run/observe/run_listener.h"

namespace penstock {

/// Thread-safety: `page` from any thread.
class RunMetrics final : public RunListener {
 public:
  using Gauges = std::function<std::vector<QueueGauge>()>;

  /// `config` is resolved. `page` calls `gauges`.
  RunMetrics(const RunConfig& config, Gauges gauges);

  void window_begins() override;
  void step(const StepReport& step) override;

  /// The metrics: penstock_images_total and the histogram penstock_step_seconds cover measured
  /// steps. penstock_queue_depth and penstock_queue_slots are in batches.
  /// penstock_stall_seconds_total and penstock_backpressure_seconds_total are the times that
  /// threads waited for a batch and for a free slot. penstock_input_wait_share is the share of the
  /// window in which the trainer waited for a batch. All metrics have the labels feeder and model;
  /// metrics of rings also have queue.
  std::string page() const;

 private:
  /// Upper bounds in seconds. One more bucket holds larger values.
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                         0.25,  0.5,    1.0,   2.5,  5.0,   10.0};

  const std::int64_t images_;  // per step
  const std::string labels_;
  const Gauges gauges_;
  struct Totals {
    std::array<std::int64_t, kBounds.size() + 1> counts{};
    std::int64_t steps = 0;
    double seconds = 0;
    double window_s = 0, wait_before_s = 0;  // of the window, and waits until it began
  };
  mutable std::mutex mutex_;
  Totals totals_;  // under mutex_
};

}  // namespace penstock
