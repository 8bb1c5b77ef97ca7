// SPDX-License-Identifier: Apache-2.0
// Time, and every wait that depends on it. Components ask the Clock, never std::chrono or a
// condition variable. Tests can then run the whole harness on a simulated clock, on which "5 ms" is
// exact and takes no time.
//
// Thread-safety: any thread may call any member of Clock. Use a Gate like a condition variable:
// block and wake under the mutex that guards its condition.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <utility>

namespace penstock {

using Time = std::chrono::steady_clock::time_point;
using Nanoseconds = std::chrono::nanoseconds;

constexpr double to_seconds(Nanoseconds time) noexcept {
  return std::chrono::duration<double>(time).count();
}

/// Threads block on a gate until something changes. Notify it through Clock::wake, not directly.
class Gate {
 public:
  std::condition_variable_any condition;
  // Simulated clocks keep these to know which threads can run.
  std::int64_t sleepers = 0;
  std::uint64_t wakes = 0;
};

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;

  virtual Time now() const = 0;

  /// Blocks until `deadline` or a stop request. Returns at once if `deadline` has passed.
  virtual void sleep_until(Time deadline, std::stop_token stop = {}) = 0;

  /// Blocks until `deadline`, as exactly as the clock can. It takes no stop request; the clock of
  /// devices of a stopped run may end it early. The calling thread polls the clock during the last
  /// `spin` before the deadline, or during what is left of it after a late wake-up. Returns how
  /// long it polled, which is CPU time.
  virtual Nanoseconds sleep_exactly_until(Time deadline, Nanoseconds /*spin*/) {
    sleep_until(deadline);
    return {};
  }

  /// Wakes all threads that block on `gate`. The caller holds the mutex of the gate's condition.
  virtual void wake(Gate& gate) = 0;

  /// Blocks until `ready()` is true or a stop is requested; returns ready(). The caller holds
  /// `lock` on entry and on exit; `ready` runs under it.
  template <typename Ready>
  bool wait(std::unique_lock<std::mutex>& lock, Gate& gate, std::stop_token stop, Ready ready) {
    return wait_for_condition(
        lock, gate, std::move(stop),
        {[](void* object) { return (*static_cast<Ready*>(object))(); }, &ready});
  }

  /// Stands for a thread that takes part in simulated time. Simulated time stands still while any
  /// such thread can run. The parent thread makes it before it starts the new thread, and the new
  /// thread owns it.
  class Participant {
   public:
    explicit Participant(Clock& clock) : clock_(&clock) { clock_->count_participants(1); }
    Participant(Participant&& other) noexcept : clock_(std::exchange(other.clock_, nullptr)) {}
    Participant& operator=(Participant&&) = delete;
    ~Participant() {
      if (clock_ != nullptr) clock_->count_participants(-1);
    }

   private:
    Clock* clock_;
  };

 protected:
  struct Condition {
    bool (*call)(void*);
    void* object;
    bool operator()() const { return call(object); }
  };
  virtual bool wait_for_condition(std::unique_lock<std::mutex>& lock, Gate& gate,
                                  std::stop_token stop, Condition ready) = 0;
  /// The number of participants changes by `change`: 1 or -1.
  virtual void count_participants(int /*change*/) noexcept {}
};

/// The machine's steady clock. Sleeps have absolute deadlines and never end early. They end late by
/// the time that the kernel needs to wake a thread, and by the thread's timer slack (50 us by
/// default). sleep_exactly_until sets the calling thread's timer slack to the minimum, permanently.
class SteadyClock final : public Clock {
 public:
  Time now() const override;
  void sleep_until(Time deadline, std::stop_token stop) override;
  Nanoseconds sleep_exactly_until(Time deadline, Nanoseconds spin) override;
  void wake(Gate& gate) override;

 protected:
  bool wait_for_condition(std::unique_lock<std::mutex>& lock, Gate& gate, std::stop_token stop,
                          Condition ready) override;
};

}  // namespace penstock
