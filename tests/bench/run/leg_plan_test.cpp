// SPDX-License-Identifier: Apache-2.0
#include "bench/run/leg_plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Phase = LegPlan::Phase;

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
constexpr Time kStart{1s};

TEST(LegPlan, TakesWarmUpThenTheWindowThenJudgesIt) {
  LegPlan plan({.warm_up = 5, .window = 8});
  EXPECT_EQ(plan.phase(), Phase::warm_up);
  EXPECT_EQ(plan.take_warm_up(kAny), 5u);
  EXPECT_EQ(plan.phase(), Phase::settling);
  EXPECT_EQ(plan.take_settling(false, kStart), 0u);
  plan.begin_window(0, 1);
  EXPECT_EQ(plan.phase(), Phase::window);
  EXPECT_EQ(plan.take_window(kAny), 8u);
  EXPECT_EQ(plan.phase(), Phase::judging);
  EXPECT_FALSE(plan.may_extend());
  EXPECT_EQ(plan.discarded_steps(), 5);
  plan.end();
  EXPECT_EQ(plan.phase(), Phase::over);
  EXPECT_TRUE(plan.is_complete());
}

TEST(LegPlan, CutsLegsWhereAnEvaluationOrACheckpointIsDue) {
  LegPlan plan({.warm_up = 5, .window = 8});
  EXPECT_EQ(plan.take_warm_up(3), 3u);
  EXPECT_EQ(plan.phase(), Phase::warm_up);
  EXPECT_EQ(plan.take_warm_up(3), 2u);
  plan.begin_window(0, 1);
  EXPECT_EQ(plan.take_window(6), 6u);
  EXPECT_EQ(plan.phase(), Phase::window);
  EXPECT_EQ(plan.take_window(6), 2u);
}

TEST(LegPlan, MeasuresAtLeastTheLastStepOfAResumedRun) {
  LegPlan plan({.warm_up = 5, .window = 8, .taken = 12});
  EXPECT_EQ(plan.phase(), Phase::settling);
  plan.begin_window(0, 1);
  EXPECT_EQ(plan.requested(), 1u);
  const LegPlan early({.warm_up = 5, .window = 8, .taken = 10});
  EXPECT_EQ(early.warm_up_left(), 2);
  const LegPlan done({.warm_up = 5, .window = 8, .taken = 13});
  EXPECT_TRUE(done.has_nothing_left());
  EXPECT_EQ(done.phase(), Phase::over);
}

TEST(LegPlan, TakesNoStepsIfTheRunOnlyEvaluates) {
  const LegPlan plan({.warm_up = 5, .window = 8, .evaluates_only = true});
  EXPECT_EQ(plan.phase(), Phase::over);
}

TEST(LegPlan, AddsWarmUpWhileAFeederTunesItselfForThirtySeconds) {
  LegPlan plan({.window = 8, .may_settle = true});
  EXPECT_EQ(plan.take_settling(false, kStart), 10u);
  EXPECT_EQ(plan.take_settling(false, kStart + 29s), 10u);
  EXPECT_EQ(plan.take_settling(false, kStart + 30s), 0u);
  EXPECT_EQ(plan.discarded_steps(), 20);
  EXPECT_EQ(plan.take_settling(true, kStart + 1s), 0u);
}

TEST(LegPlan, ExtendsAWindowToTwentyReservesAtMostFourTimes) {
  LegPlan plan({.window = 8, .extends = true});
  plan.begin_window(3, 2);
  EXPECT_EQ(plan.requested(), 8u);
  EXPECT_EQ(plan.length(), 31u);
  for (int window = 1; window < LegPlan::kMaxWindows; ++window) {
    EXPECT_TRUE(plan.may_extend());
    plan.begin_window(0, 2);
    EXPECT_EQ(plan.length(), 8u);
  }
  EXPECT_FALSE(plan.may_extend());
  EXPECT_EQ(plan.discarded_steps(), 31 + 8 + 8);
}

}  // namespace
}  // namespace penstock
