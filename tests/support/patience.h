// SPDX-License-Identifier: Apache-2.0
// Waits and time limits for tests on machines that may pause for seconds at any moment.
#pragma once

#include <chrono>
#include <thread>

namespace penstock {

/// Blocks until `condition()` is true, which other threads or processes cause. False: it did not
/// become true within `limit`.
template <typename Condition>
bool await(const Condition& condition, std::chrono::seconds limit = std::chrono::seconds(40)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// For a timeout that must not expire before an event. `attempt` first gets a short timeout, and
/// one four times as long whenever it returns false because the timeout was too short. Returns
/// false if half a minute was too short.
template <typename Attempt>
bool with_patience(const Attempt& attempt,
                   std::chrono::milliseconds first = std::chrono::milliseconds(300)) {
  for (std::chrono::milliseconds time = first; time < std::chrono::seconds(40); time *= 4) {
    if (attempt(time)) return true;
  }
  return false;
}

/// True if `take`, which returns its duration, stays within `limit` in one of five tries.
template <typename Limit, typename Take>
bool is_prompt(Limit limit, const Take& take) {
  for (int tries = 0; tries < 5; ++tries) {
    if (take() < limit) return true;
  }
  return false;
}

}  // namespace penstock
