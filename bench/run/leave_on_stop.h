// SPDX-License-Identifier: Apache-2.0
// Work of which nothing is saved, such as what a run does before it measures, ends with the
// process.
#pragma once

#include <chrono>
#include <functional>
#include <semaphore>
#include <stop_token>
#include <utility>

namespace penstock {

/// While it lives, a stop request lets the work go on for half a second, in which it may end by
/// itself and save what it found out. Then `leave` is called, on the thread that requests the stop,
/// and ends the process. Made and destroyed by the thread that works.
class LeaveOnStop {
 public:
  LeaveOnStop(const std::stop_token& stop, std::function<void()> leave)
      : leave_(std::move(leave)), at_stop_(stop, [this] {
          constexpr std::chrono::milliseconds kToEnd{500};
          if (!ended_.try_acquire_for(kToEnd)) leave_();
        }) {}
  LeaveOnStop(const LeaveOnStop&) = delete;
  LeaveOnStop& operator=(const LeaveOnStop&) = delete;
  ~LeaveOnStop() { ended_.release(); }

 private:
  const std::function<void()> leave_;
  std::binary_semaphore ended_{0};
  std::stop_callback<std::function<void()>> at_stop_;  // the last: it uses the others
};

}  // namespace penstock
