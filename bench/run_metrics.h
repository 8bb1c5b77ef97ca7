// SPDX-License-Identifier: Apache-2.0
// A run as Prometheus reads it, in its text format (version 0.0.4).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "bench/runner.h"

namespace penstock {

/// Thread-safety: `page` from any thread.
class RunMetrics final : public RunListener {
 public:
  using Gauges = std::function<std::vector<QueueGauge>()>;

  /// `config` is resolved. `gauges` is asked by `page`.
  RunMetrics(const RunConfig& config, Gauges gauges);

  void step(const StepReport& step) override;

  /// penstock_images_total and the histogram penstock_step_seconds: of measured steps;
  /// penstock_queue_depth and penstock_queue_slots, in batches; penstock_stall_seconds_total and
  /// penstock_backpressure_seconds_total: threads blocked for want of a batch, or of room. Queues
  /// are labels.
  std::string page() const;

 private:
  /// Upper bounds, in seconds; one more bucket holds what is above.
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                         0.25,  0.5,    1.0,   2.5,  5.0,   10.0};

  const std::int64_t images_;  // per step
  const Gauges gauges_;
  mutable std::mutex mutex_;
  // All below under mutex_.
  std::array<std::int64_t, kBounds.size() + 1> counts_{};
  std::int64_t steps_ = 0;
  double seconds_ = 0;
};

}  // namespace penstock
