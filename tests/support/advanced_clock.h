// SPDX-License-Identifier: Apache-2.0
// The machine's clock, which a test may set forward: for time-outs of components whose peers live
// in real time. The time-out is long enough for any machine, and no test waits for it.
#pragma once

#include <atomic>
#include <utility>

#include "dataflow/clock.h"

namespace penstock {

/// Thread-safety: that of Clock; advance() from any thread. A wait that has begun ends no earlier;
/// what asks for the time again sees the new one.
class AdvancedClock final : public Clock {
 public:
  Time now() const override { return steady_.now() + Nanoseconds(ahead_.load()); }
  void sleep_until(Time deadline, std::stop_token stop) override {
    steady_.sleep_until(deadline - Nanoseconds(ahead_.load()), std::move(stop));
  }
  void wake(Gate& gate) override { steady_.wake(gate); }
  void advance(Nanoseconds time) { ahead_ += time.count(); }

 protected:
  bool wait_for_condition(std::unique_lock<std::mutex>& lock, Gate& gate, std::stop_token stop,
                          Condition ready) override {
    return steady_.wait(lock, gate, std::move(stop), ready);
  }

 private:
  SteadyClock steady_;
  std::atomic<std::int64_t> ahead_{0};
};

}  // namespace penstock
