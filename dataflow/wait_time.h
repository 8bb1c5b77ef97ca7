// SPDX-License-Identifier: Apache-2.0
// The total time that threads have waited. It is exact at any moment, even while threads still
// wait, so the difference between two moments is exactly the wait between them.
//
// Thread-safety: any thread. It holds an internal lock for some nanoseconds.
#pragma once

#include <cstdint>
#include <mutex>

#include "dataflow/clock.h"

namespace penstock {

class WaitTime {
 public:
  struct Sum {
    std::int64_t ns = 0;
    std::int64_t waits = 0;  ///< waits that have begun
  };

  /// `threads` more threads wait from `now` on. Calls may come out of time order.
  void begin(Time now, std::int64_t threads = 1) noexcept {
    const std::lock_guard lock(mutex_);
    waiting_ += threads;
    waits_ += threads;
    ns_ -= threads * ns_of(now);
  }
  /// `threads` waiting threads stop waiting at `now`.
  void end(Time now, std::int64_t threads = 1) noexcept {
    const std::lock_guard lock(mutex_);
    waiting_ -= threads;
    ns_ += threads * ns_of(now);
  }
  /// Adds a wait that is already over.
  void add(Nanoseconds waited) noexcept {
    const std::lock_guard lock(mutex_);
    ++waits_;
    ns_ += waited.count();
  }

  /// The sum up to `now`, which must not be before any moment so far.
  Sum until(Time now) const noexcept {
    const std::lock_guard lock(mutex_);
    return {ns_ + waiting_ * ns_of(now), waits_};
  }

 private:
  static std::int64_t ns_of(Time moment) noexcept {
    return std::chrono::duration_cast<Nanoseconds>(moment.time_since_epoch()).count();
  }

  mutable std::mutex mutex_;
  // mutex_ protects everything below.
  std::int64_t waiting_ = 0, waits_ = 0;
  std::int64_t ns_ = 0;  // for waits in progress, holds minus their start times
};

}  // namespace penstock
