// SPDX-License-Identifier: Apache-2.0
#include "dataflow/clock.h"

#include <thread>
#include <utility>

namespace penstock {

Time SteadyClock::now() const { return std::chrono::steady_clock::now(); }

void SteadyClock::sleep_until(Time deadline, std::stop_token stop) {
  if (deadline <= now()) return;
  if (!stop.stop_possible()) {
    std::this_thread::sleep_until(deadline);
    return;
  }
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_until(lock, stop, deadline, [] { return false; });
}

void SteadyClock::wake(Gate& gate) { gate.condition.notify_all(); }

bool SteadyClock::wait_for_condition(std::unique_lock<std::mutex>& lock, Gate& gate,
                                     std::stop_token stop, Condition ready) {
  return gate.condition.wait(lock, std::move(stop), ready);
}

}  // namespace penstock
