// SPDX-License-Identifier: Apache-2.0
// A thread of low priority that looks at something again and again beside a measurement.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "dataflow/clock.h"

namespace penstock {

/// Calls a function every `period` during its lifetime, at once for the first time. Periods are
/// those of the machine's steady clock, also in runs on a simulated clock: they measure the
/// machine. Allocates nothing after construction.
class Sampler {
 public:
  /// `sample` gets the current time. It is called on the sampler's thread.
  Sampler(std::function<void(Time)> sample, Nanoseconds period);

 private:
  void run(const std::stop_token& stop);

  const std::function<void(Time)> sample_;
  const Nanoseconds period_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // last member: its thread ends first
};

}  // namespace penstock
