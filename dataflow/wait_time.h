// SPDX-License-Identifier: Apache-2.0
// How long threads waited, in all: exact at any moment, also while some of them still wait, so that
// differences between two moments hold what lies between them and nothing else.
//
// Thread-safety: any thread. A lock of its own is held for some nanoseconds.
#pragma once

#include <cstdint>
#include <mutex>

#include "dataflow/clock.h"

namespace penstock {

class WaitTime {
 public:
  struct Sum {
    std::int64_t ns = 0;
    std::int64_t waits = 0;  ///< that have begun
  };

  /// So many threads wait from now on. Moments may come out of order.
  void begin(Time now, std::int64_t threads = 1) noexcept {
    const std::lock_guard lock(mutex_);
    waiting_ += threads;
    waits_ += threads;
    ns_ -= threads * ns_of(now);
  }
  /// So many that waited go on.
  void end(Time now, std::int64_t threads = 1) noexcept {
    const std::lock_guard lock(mutex_);
    waiting_ -= threads;
    ns_ += threads * ns_of(now);
  }
  /// A wait that is over already.
  void add(Nanoseconds waited) noexcept {
    const std::lock_guard lock(mutex_);
    ++waits_;
    ns_ += waited.count();
  }

  /// `now` lies behind all moments so far.
  Sum until(Time now) const noexcept {
    const std::lock_guard lock(mutex_);
    return {ns_ + waiting_ * ns_of(now), waits_};
  }

 private:
  static std::int64_t ns_of(Time moment) noexcept {
    return std::chrono::duration_cast<Nanoseconds>(moment.time_since_epoch()).count();
  }

  mutable std::mutex mutex_;
  // All below under mutex_.
  std::int64_t waiting_ = 0, waits_ = 0;
  std::int64_t ns_ = 0;  // what those that wait have waited is missing: minus when they began
};

}  // namespace penstock
