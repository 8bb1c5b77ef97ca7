// SPDX-License-Identifier: Apache-2.0
// The machine's clock, which a test can set forward. For timeouts of components whose peers run in
// real time. The timeout is long enough for any machine, and no test waits for it.
#pragma once

#include <atomic>
#include <utility>

#include "dataflow/clock.h"

namespace penstock {

/// Thread-safety: as for Clock; advance() may be called from any thread. A wait that has begun does
/// not end earlier; later readings include the advance.
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
