// SPDX-License-Identifier: Apache-2.0
// How long one rank of several processes waits for the others in an exchange, and the error if they
// do not come.
#pragma once

#include <cstdint>
#include <thread>

#include "dataflow/clock.h"
#include "trainer/cluster/processes.h"

namespace penstock::cluster {

/// Several threads may use it.
class ExchangeWait {
 public:
  /// Keeps the timeout and the stop tokens of `exchange`. `clock` outlives it.
  ExchangeWait(const Processes::Exchange& exchange, const Launch& launch, Clock& clock)
      : patience_(exchange.patience),
        stopping_(exchange.stopping),
        abandon_(exchange.abandon),
        rank_(launch.rank),
        clock_(&clock) {}

  /// One wait; begins with the constructor.
  class Attempt {
   public:
    explicit Attempt(const ExchangeWait& wait)
        : wait_(wait),
          begin_(wait.clock_->now()),
          deadline_(begin_ + wait.patience_),
          last_moment_(Time::max()) {}
    /// Throws TimeoutError if the wait exceeds the timeout, and Error if the run is being stopped.
    /// True: the wait is long enough that the thread should sleep.
    bool lasts();

   private:
    const ExchangeWait& wait_;
    const Time begin_, deadline_;
    Time last_moment_;  // set once the run is being stopped
  };

  /// Calls `done()` repeatedly until it returns true.
  template <typename Done>
  void until(const Done& done) const {
    for (Attempt attempt(*this); !done();) {
      if (attempt.lasts()) {
        clock_->sleep_until(clock_->now() + kNap);
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  static constexpr Nanoseconds kSpin = std::chrono::microseconds(200);
  static constexpr Nanoseconds kNap = std::chrono::microseconds(50);

  Nanoseconds patience_;
  std::stop_token stopping_, abandon_;
  std::int32_t rank_;
  Clock* clock_;
};

}  // namespace penstock::cluster
