// SPDX-License-Identifier: Apache-2.0
// How long a rank of several processes waits for the others in an exchange, and what it says when
// they do not come.
#pragma once

#include <cstdint>
#include <thread>

#include "dataflow/clock.h"
#include "trainer/processes.h"

namespace penstock {

/// May be used by several threads.
class ExchangeWait {
 public:
  /// Keeps what `exchange` says of patience and of stops; `clock` outlives it.
  ExchangeWait(const Processes::Exchange& exchange, const Launch& launch, Clock& clock)
      : patience_(exchange.patience),
        stopping_(exchange.stopping),
        abandon_(exchange.abandon),
        rank_(launch.rank),
        clock_(&clock) {}

  /// One wait, that has begun.
  class Attempt {
   public:
    explicit Attempt(const ExchangeWait& wait)
        : wait_(wait),
          begin_(wait.clock_->now()),
          deadline_(begin_ + wait.patience_),
          last_moment_(Time::max()) {}
    /// Throws TimeoutError where it has lasted too long, and Error where the run is being stopped.
    /// True: it has lasted so long that the wait should give its core away.
    bool lasts();

   private:
    const ExchangeWait& wait_;
    const Time begin_, deadline_;
    Time last_moment_;  // once the run is being stopped
  };

  /// Asks for `done()` until it is true.
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

}  // namespace penstock
