// SPDX-License-Identifier: Apache-2.0
// A simulated clock. Time stands still while any participant can run. When all participants wait,
// it jumps to the next deadline. Runs of many simulated seconds take milliseconds and are exact.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

#include "dataflow/clock.h"

namespace penstock {

class VirtualClock final : public Clock {
 public:
  Time now() const override {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  void sleep_until(Time deadline, std::stop_token = {}) override {
    std::unique_lock lock(mutex_);
    if (deadline <= now_) return;
    sleepers_.insert(deadline);
    --runnable_;
    advance_if_all_wait();
    time_moved_.wait(lock, [&] { return now_ >= deadline; });
  }

  void wake(Gate& gate) override {
    {
      const std::lock_guard lock(mutex_);
      runnable_ += gate.sleepers;
    }
    gate.sleepers = 0;
    ++gate.wakes;
    gate.condition.notify_all();
  }

 protected:
  bool wait_for_condition(std::unique_lock<std::mutex>& lock, Gate& gate, std::stop_token stop,
                          Condition ready) override {
    while (!ready() && !stop.stop_requested()) wait_once(lock, gate, stop, ready);
    return ready();
  }

  void count_participants(int change) noexcept override {
    const std::lock_guard lock(mutex_);
    runnable_ += change;
    advance_if_all_wait();
  }

 private:
  void wait_once(std::unique_lock<std::mutex>& lock, Gate& gate, const std::stop_token& stop,
                 Condition ready) {
    // The callback takes the caller's mutex. Make and destroy it without holding that mutex, and
    // check the condition again afterwards.
    std::mutex& mutex = *lock.mutex();
    lock.unlock();
    {
      const std::stop_callback wake_on_stop(stop, [&] {
        const std::lock_guard guard(mutex);
        wake(gate);
      });
      lock.lock();
      while (!ready() && !stop.stop_requested()) {
        const std::uint64_t wakes = gate.wakes;
        ++gate.sleepers;
        {
          const std::lock_guard guard(mutex_);
          --runnable_;
          advance_if_all_wait();
        }
        gate.condition.wait(lock, [&] { return gate.wakes != wakes; });
      }
      lock.unlock();
    }
    lock.lock();
  }

  void advance_if_all_wait() {
    if (runnable_ > 0 || sleepers_.empty()) return;
    now_ = *sleepers_.begin();
    while (!sleepers_.empty() && *sleepers_.begin() <= now_) {
      sleepers_.erase(sleepers_.begin());
      ++runnable_;
    }
    time_moved_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable time_moved_;
  Time now_{std::chrono::hours(1)};  // not the epoch, which means "long ago"
  std::int64_t runnable_ = 0;
  std::multiset<Time> sleepers_;
};

}  // namespace penstock
