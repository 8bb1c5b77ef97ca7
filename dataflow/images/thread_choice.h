// SPDX-License-Identifier: Apache-2.0
// How many threads fill a ring as fast as its readers empty it: begins with one, doubles the number
// until readers no longer wait or there are no more threads, and then takes as many as the readers'
// rate needs, at the rate that a thread had while nothing held it up; one more where that turns out
// to be too few. Arithmetic alone: what it is told of times and waits is all that it knows.
//
// How long readers wait says little of how much more they could take: one that fills queues of its
// own waits always. They do so also while those queues fill up, so that it takes two intervals with
// waits to say that threads are too few; and a reserve that shrinks hides waits.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/batch_ring.h"

namespace penstock {

class ThreadChoice {
 public:
  /// Readers that wait for less than this share of the time do not wait.
  static constexpr double kNoWait = 0.02;
  /// What an interval has at least before it says anything, once the pool has got going: batches,
  /// and time.
  static constexpr std::uint64_t kSkipped = 2, kBatches = 8;
  static constexpr Nanoseconds kTime = std::chrono::milliseconds(100);

  /// `most` and `readers` are above 0.
  ThreadChoice(std::int32_t most, std::size_t readers);

  /// The ring, which is being watched, as it is `now`; in the order of time.
  void observe(const RingStats& ring, Time now);
  /// What is chosen by now stays.
  void stop() noexcept { settled_ = true; }

  std::int32_t threads() const noexcept { return threads_; }
  bool is_settled() const noexcept { return settled_; }
  /// "6 (auto: readers wait for 0.4 % of the time; 17.0 % with 5)". Once it is settled.
  std::string text() const;

 private:
  enum class Ending : std::uint8_t { too_early, enough, no_more };
  void begin(const RingStats& ring, Time now) noexcept;
  void take_more() noexcept;
  void take_enough(double demand) noexcept;
  void begin_anew() noexcept;
  void settle(Ending ending) noexcept;

  const std::int32_t most_;
  const double readers_;
  std::int32_t threads_ = 1, too_few_ = 0;   // too few: the most of which that is known
  double wait_ = 0, wait_with_too_few_ = 0;  // shares of the time
  double rate_of_one_ = 0;                   // batches a second, while readers wait
  bool settled_ = false, measuring_ = false, waited_before_ = false, is_fitted_ = false;
  Ending ending_ = Ending::too_early;
  // The interval under way, and the batches before which none begins.
  std::uint64_t skip_until_ = kSkipped, first_batch_ = 0, reserve_ = 0;
  Time began_{};
  Nanoseconds waited_{};
};

}  // namespace penstock
