// SPDX-License-Identifier: Apache-2.0
// Ends the process on a stop request during work that has nothing to save, such as the preparation
// of a run.
#pragma once

#include <chrono>
#include <functional>
#include <semaphore>
#include <stop_token>
#include <utility>

namespace penstock {

/// While this object exists, a stop request gives the work half a second to end and to save its
/// findings. Then it calls `leave`, on the thread that requests the stop, to end the process. The
/// working thread makes and destroys the object.
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
  std::stop_callback<std::function<void()>> at_stop_;  // last member: it uses the others
};

}  // namespace penstock
