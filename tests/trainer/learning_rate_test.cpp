// SPDX-License-Identifier: Apache-2.0
#include "trainer/learning_rate.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"

namespace penstock {
namespace {

TEST(LearningRate, IsConstantWithoutAnyRule) {
  const LearningRatePlan plan{.initial = 0.25};
  EXPECT_FLOAT_EQ(learning_rate(plan, 0), 0.25F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 1'000'000), 0.25F);
}

TEST(LearningRate, GrowsInProportionToTheStep) {
  const LearningRatePlan plan{.initial = 0.4, .warmup_steps = 4};
  EXPECT_FLOAT_EQ(learning_rate(plan, 0), 0);
  EXPECT_FLOAT_EQ(learning_rate(plan, 1), 0.1F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 3), 0.3F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 4), 0.4F);
}

TEST(LearningRate, DecaysInStairsDownToItsMinimum) {
  const LearningRatePlan plan{
      .initial = 0.8, .decay_steps = 10, .decay_factor = 0.5, .minimum = 0.15};
  EXPECT_FLOAT_EQ(learning_rate(plan, 9), 0.8F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 10), 0.4F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 29), 0.2F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 30), 0.15F);
}

TEST(LearningRate, ASchedulesRateHoldsUntilOneStepBeforeItsEpochEnds) {
  // 10.5 steps per epoch: int(2 * 10.5) - 1 = 20 and int(3 * 10.5) - 1 = 30 are the last steps.
  const LearningRatePlan plan = plan_of_schedule(parse_rate_schedule("0.1;2;0.01;3;0.001"), 10.5);
  EXPECT_FLOAT_EQ(learning_rate(plan, 0), 0.1F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 20), 0.1F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 21), 0.01F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 30), 0.01F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 31), 0.001F);
}

TEST(LearningRate, ResNetsGrowForFiveEpochsAndFallAtFourBoundaries) {
  const LearningRatePlan plan = resnet_plan(0.128, 100);
  EXPECT_FLOAT_EQ(learning_rate(plan, 250), 0.064F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 500), 0.128F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 3000), 0.128F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 3001), 0.0128F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 6001), 0.00128F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 8001), 0.000128F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 9001), 0.0000128F);
}

TEST(LearningRate, RefusesInvalidSchedules) {
  for (const char* text : {"", "a", "0.1;", "0.1;30", "0.1;30;0.01;20;0.001", "-0.1", "0.1;0;0.2",
                           "0.1;1;inf", "nan"}) {
    EXPECT_THROW(parse_rate_schedule(text), ConfigError) << text;
  }
}

}  // namespace
}  // namespace penstock
