// SPDX-License-Identifier: Apache-2.0
// What a test says of time on a machine that may stand still for seconds at any moment.
#pragma once

#include <chrono>
#include <thread>

namespace penstock {

/// Blocks until `condition()`, which other threads or processes bring about. False: they did not
/// within `limit`.
template <typename Condition>
bool await(const Condition& condition, std::chrono::seconds limit = std::chrono::seconds(40)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// For a time-out that something has to come before: `attempt` gets a short one first, and four
/// times as long whenever it says, with false, that it was too short. False: half a minute was.
template <typename Attempt>
bool with_patience(const Attempt& attempt,
                   std::chrono::milliseconds first = std::chrono::milliseconds(300)) {
  for (std::chrono::milliseconds time = first; time < std::chrono::seconds(40); time *= 4) {
    if (attempt(time)) return true;
  }
  return false;
}

/// Whether `take`, which returns how long it took, can be done within `limit`: in one of five
/// tries.
template <typename Limit, typename Take>
bool is_prompt(Limit limit, const Take& take) {
  for (int tries = 0; tries < 5; ++tries) {
    if (take() < limit) return true;
  }
  return false;
}

}  // namespace penstock
