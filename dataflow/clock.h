// SPDX-License-Identifier: Apache-2.0
// Time, and every wait of the harness that depends on it. Components never ask std::chrono or a
// condition variable themselves: they ask the Clock, so that tests run the whole harness on a
// simulated clock on which "5 ms" is exact and takes no time.
//
// Thread-safety: all members of Clock may be called from any thread. A Gate is used like a
// condition variable: block and wake under the mutex that guards its condition.
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

/// Where threads block until something changes. Notify it through Clock::wake, not directly.
class Gate {
 public:
  std::condition_variable_any condition;
  // Kept by simulated clocks, which have to know who can run.
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

  /// Blocks until `deadline` or a stop request; returns at once when it lies in the past.
  virtual void sleep_until(Time deadline, std::stop_token stop = {}) = 0;

  /// Blocks until `deadline`, as exactly as the clock can, and cannot be stopped. The calling
  /// thread asks for the time again and again for `spin` before it, or for what is left of it once
  /// the thread is awake; returns how long it did, which is CPU time.
  virtual Nanoseconds sleep_exactly_until(Time deadline, Nanoseconds /*spin*/) {
    sleep_until(deadline);
    return {};
  }

  /// Wakes all that block on `gate`. The caller holds the mutex of the gate's condition.
  virtual void wake(Gate& gate) = 0;

  /// Blocks until `ready()` or a stop request; returns ready(). `lock` is held on entry and on
  /// exit; `ready` runs under it.
  template <typename Ready>
  bool wait(std::unique_lock<std::mutex>& lock, Gate& gate, std::stop_token stop, Ready ready) {
    return wait_for_condition(
        lock, gate, std::move(stop),
        {[](void* object) { return (*static_cast<Ready*>(object))(); }, &ready});
  }

  /// A thread that takes part in simulated time: time stands still while any of them can run. Made
  /// by the thread that starts another one, before it starts it, and owned by the new one.
  class Participant {
   public:
    explicit Participant(Clock& clock) : clock_(&clock) { clock_->enter(); }
    Participant(Participant&& other) noexcept : clock_(std::exchange(other.clock_, nullptr)) {}
    Participant& operator=(Participant&&) = delete;
    ~Participant() {
      if (clock_ != nullptr) clock_->leave();
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
  virtual void enter() noexcept {}
  virtual void leave() noexcept {}
};

/// The machine's steady clock. Sleeps have absolute deadlines and never end early; they end late by
/// what the kernel needs to wake a thread, and by the thread's timer slack (50 us unless set),
/// which sleep_exactly_until sets to its least for the calling thread, for good.
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
