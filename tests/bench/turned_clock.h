// SPDX-License-Identifier: Apache-2.0
// A clock that fake runs advance, for tests of budgets.
#pragma once

#include <algorithm>

#include "dataflow/clock.h"

namespace penstock {

class TurnedClock final : public Clock {
 public:
  Time now() const override { return now_; }
  void sleep_until(Time deadline, std::stop_token) override { now_ = std::max(now_, deadline); }
  void wake(Gate&) override {}
  void turn(Nanoseconds by) { now_ += by; }

 protected:
  bool wait_for_condition(std::unique_lock<std::mutex>&, Gate&, std::stop_token,
                          Condition) override {
    return false;
  }

 private:
  Time now_{};
};

}  // namespace penstock
