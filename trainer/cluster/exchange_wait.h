// SPDX-License-Identifier: Apache-2.0
// How long one rank of several processes waits for the others, and the error if they do not come.
// In a run that watches its ranks, liveness/ gets to know of these waits and names the rank that
// does not come.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "dataflow/clock.h"
#include "trainer/cluster/processes.h"
#include "trainer/cluster/rank_progress.h"
#include "trainer/collective.h"

namespace penstock::cluster {

/// How long an exchange that knows that a rank is gone leaves it to the watch over the ranks to
/// report that, with the rank's name and the results so far.
inline constexpr Nanoseconds kBehindWatch = std::chrono::seconds(5);

/// A thread that waits yields for this long, then sleeps.
inline constexpr Nanoseconds kSpin = std::chrono::microseconds(200);

/// Calls `done()` until it returns true, and `check(now)`, which may throw, before each pause.
template <typename Done, typename Check>
void poll_until(Clock& clock, const Done& done, const Check& check) {
  constexpr Nanoseconds kNap = std::chrono::microseconds(50);
  for (const Time begin = clock.now(); !done();) {
    const Time now = clock.now();
    check(now);
    if (now - begin > kSpin) {
      clock.sleep_until(now + kNap);
    } else {
      std::this_thread::yield();
    }
  }
}

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
        : wait_(wait), begin_(wait.clock_->now()), deadline_(begin_ + wait.patience_) {}
    /// Throws TimeoutError if the wait exceeds the timeout, and Error if the run is being stopped.
    void check(Time now);
    /// The same. True: the wait is long enough that the thread should sleep.
    bool lasts() {
      const Time now = wait_.clock_->now();
      check(now);
      return now - begin_ > kSpin;
    }

   private:
    const ExchangeWait& wait_;
    const Time begin_, deadline_;
    Time last_moment_ = Time::max();  // earlier once the run is being stopped
  };

  /// Calls `done()` repeatedly until it returns true.
  template <typename Done>
  void until(const Done& done) const {
    Attempt attempt(*this);
    poll_until(*clock_, done, [&](Time now) { attempt.check(now); });
  }

 private:
  Nanoseconds patience_;
  std::stop_token stopping_, abandon_;
  std::int32_t rank_;
  Clock* clock_;
};

/// Timeouts of an exchange.
struct StepPatience {
  Nanoseconds first_step = std::chrono::seconds(300);
  /// For later steps: the longer of this and kMedians times the median step so far.
  Nanoseconds step = std::chrono::seconds(30);
  static constexpr int kMedians = 20;
};

/// Returns `group`, with every wait reported to `progress`. `progress` and `clock` outlive it.
std::unique_ptr<CollectiveGroup> watch(std::unique_ptr<CollectiveGroup> group,
                                       const StepPatience& patience, RankProgress& progress,
                                       const Clock& clock);

}  // namespace penstock::cluster
