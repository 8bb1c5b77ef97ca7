// SPDX-License-Identifier: Apache-2.0
// Keeps the counters of one stage (probe.h) for one of the threads that run it: counts every item,
// and times one in so many of them, always the same ones. Where stages are not timed it does
// nothing.
//
//   StageTimer timer(probe.stage({"draw", "feeder thread"}), clock);
//   { const auto wait = timer.wait_out(); ... }
//   StageTimer::Item item(timer); ...; item.done(images, bytes);
//
// Thread-safety: one thread at a time; timers of the same stage from any threads.
#pragma once

#include <cstdint>

#include "dataflow/clock.h"
#include "dataflow/probe.h"

namespace penstock {

/// CPU time of the calling thread so far: time stolen by others is none of it.
Nanoseconds thread_cpu_time() noexcept;

class StageTimer {
 public:
  /// Times the item number `first` (from 0) and every `period`-th behind it. Both outlive the
  /// timer.
  StageTimer(StageCounters& counters, const Clock& clock, std::uint32_t period = 1,
             std::uint32_t first = 0) noexcept
      : counters_(counters.on ? &counters : nullptr),
        clock_(&clock),
        period_(period),
        until_timed_(first % period) {}
  /// Does nothing.
  StageTimer() = default;

  bool is_on() const noexcept { return counters_ != nullptr; }

  /// The thread waits until the end of the scope.
  class [[nodiscard]] Wait {
   public:
    Wait(WaitTime* sum, const Clock* clock) noexcept : sum_(sum), clock_(clock) {
      if (sum_ != nullptr) sum_->begin(clock_->now());
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait() {
      if (sum_ != nullptr) sum_->end(clock_->now());
    }

   private:
    WaitTime* const sum_;
    const Clock* const clock_;
  };
  /// For something from upstream.
  Wait wait_in() const noexcept { return {is_on() ? &counters_->wait_in : nullptr, clock_}; }
  /// For room downstream.
  Wait wait_out() const noexcept { return {is_on() ? &counters_->wait_out : nullptr, clock_}; }

  /// Work on one item, from here on. It counts once it is done.
  class Item {
   public:
    explicit Item(StageTimer& timer) noexcept;
    /// What was before is not timed: the thread waited.
    void restart() noexcept;
    /// Ends it. Returns its CPU time; 0 where it was not timed.
    Nanoseconds done(std::int64_t images, std::int64_t bytes) noexcept;

   private:
    StageTimer& timer_;
    bool timed_ = false;
    Time wall_begin_{};
    Nanoseconds cpu_begin_{};
  };

 private:
  StageCounters* counters_ = nullptr;
  const Clock* clock_ = nullptr;
  std::uint32_t period_ = 1;
  std::uint32_t until_timed_ = 0;  // items that are not timed before the next one that is
};

}  // namespace penstock
