// SPDX-License-Identifier: Apache-2.0
#include "bench/run/leg_plan.h"

#include <algorithm>
#include <chrono>

#include "bench/record/statistics.h"

namespace penstock {

LegPlan::LegPlan(const PlannedSteps& planned) : planned_(planned) {
  const std::int64_t left = planned.warm_up + planned.window - planned.taken;
  warm_up_left_ = std::clamp<std::int64_t>(left - 1, 0, planned.warm_up);
  window_left_ = std::max<std::int64_t>(left - warm_up_left_, 0);
}

bool LegPlan::has_nothing_left() const noexcept { return windows_ == 0 && window_left_ == 0; }

LegPlan::Phase LegPlan::phase() const noexcept {
  if (planned_.evaluates_only || complete_ || has_nothing_left()) return Phase::over;
  if (warm_up_left_ > 0) return Phase::warm_up;
  if (windows_ == 0) return Phase::settling;
  return window_left_ > 0 ? Phase::window : Phase::judging;
}

std::size_t LegPlan::take_warm_up(std::int64_t most) {
  const std::int64_t steps = std::min(warm_up_left_, most);
  warm_up_left_ -= steps;
  discarded_ += steps;
  return static_cast<std::size_t>(steps);
}

std::size_t LegPlan::take_settling(bool settled, Time now) {
  constexpr Nanoseconds kLongest = std::chrono::seconds(30);
  if (settling_since_ == Time{}) settling_since_ = now;
  if (settled || !planned_.may_settle || now - settling_since_ >= kLongest) return 0;
  discarded_ += kSettlingSteps;
  return kSettlingSteps;
}

void LegPlan::begin_window(double reserve, std::size_t ranks) {
  if (++windows_ == 1) requested_ = static_cast<std::size_t>(window_left_);
  discarded_ += static_cast<std::int64_t>(length_);
  length_ = requested_;
  if (planned_.extends) {
    const double batches = kMinReserves * std::max(0.0, reserve);
    const double steps = batches / static_cast<double>(ranks);
    length_ = std::max(length_, static_cast<std::size_t>(steps) + 1);
  }
  window_left_ = static_cast<std::int64_t>(length_);
}

std::size_t LegPlan::take_window(std::int64_t most) {
  const std::int64_t steps = std::min(window_left_, most);
  window_left_ -= steps;
  return static_cast<std::size_t>(steps);
}

}  // namespace penstock
