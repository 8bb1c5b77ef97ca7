// SPDX-License-Identifier: Apache-2.0
// Keeps the counters of one stage (probe.h) for one of the threads that run it. It counts every
// item, and times every n-th one, always the same ones. If stages are not timed it does nothing.
//
//   StageTimer timer(probe.stage({"draw", "feeder thread", 1, StageRole::draws}), clock);
//   { const auto wait = timer.wait_out(); ... }
//   StageTimer::Item item(timer); ...; item.done(images, bytes);
//
// Thread-safety: one thread at a time; several timers of the same stage may run on any threads.
#pragma once

#include <cstdint>

#include "dataflow/clock.h"
#include "dataflow/probe.h"

namespace penstock {

/// CPU time of the calling thread so far. Time that others steal is not included.
Nanoseconds thread_cpu_time() noexcept;

class StageTimer {
 public:
  /// Times item `first` (from 0) and every `period`-th item after it. The counters and the clock
  /// must outlive the timer.
  StageTimer(StageCounters& counters, const Clock& clock, std::uint32_t period = 1,
             std::uint32_t first = 0) noexcept
      : counters_(counters.on ? &counters : nullptr),
        clock_(&clock),
        period_(period),
        until_timed_(first % period) {}
  /// A default timer does nothing.
  StageTimer() = default;

  bool is_on() const noexcept { return counters_ != nullptr; }

  /// Counts the time until the end of the scope as a wait.
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
  /// A wait for input from upstream.
  Wait wait_in() const noexcept { return {is_on() ? &counters_->wait_in : nullptr, clock_}; }
  /// A wait for room downstream.
  Wait wait_out() const noexcept { return {is_on() ? &counters_->wait_out : nullptr, clock_}; }

  /// Work on one item, from here on. It counts once done() is called.
  class Item {
   public:
    explicit Item(StageTimer& timer) noexcept;
    /// Restarts the timing, because the thread has waited until now.
    void restart() noexcept;
    /// Ends the item. Returns its CPU time, or 0 if it was not timed.
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
  std::uint32_t until_timed_ = 0;  // untimed items left before the next timed one
};

}  // namespace penstock
