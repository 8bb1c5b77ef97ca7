// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/sampler.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace penstock {

Sampler::Sampler(std::function<void(Time)> sample, Nanoseconds period)
    : sample_(std::move(sample)),
      period_(period),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void Sampler::run(const std::stop_token& stop) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);  // a hint, for this thread only
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    sample_(std::chrono::steady_clock::now());
    stopped_.wait_for(lock, stop, period_, [] { return false; });
  }
}

}  // namespace penstock
