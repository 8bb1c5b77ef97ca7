// SPDX-License-Identifier: Apache-2.0
#include "bench/record/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock {
namespace {

TEST(Statistics, MedianOfOddAndEvenCounts) {
  EXPECT_DOUBLE_EQ(median(std::vector{3.0, 1.0, 2.0}), 2);
  EXPECT_DOUBLE_EQ(median(std::vector{4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{}), 0);
}

TEST(Statistics, SpreadIsMedianLowestAndHighest) {
  const Spread three = spread(std::vector{5.0, 1.0, 3.0});
  EXPECT_DOUBLE_EQ(three.median, 3);
  EXPECT_DOUBLE_EQ(three.low, 1);
  EXPECT_DOUBLE_EQ(three.high, 5);
}

TEST(Statistics, StepSpeedIsTheHarmonicMeanWithItsStandardErrorAndJitter) {
  // 100 images in 1 s, 2 s and 4 s: speeds 100, 50, 25.
  const StepSpeed speed = step_speed(100, std::vector{1.0, 2.0, 4.0}, 0);
  EXPECT_DOUBLE_EQ(speed.mean, 300.0 / 7);
  const double mean = 175.0 / 3;
  const double variance =
      (std::pow(100 - mean, 2) + std::pow(50 - mean, 2) + std::pow(25 - mean, 2)) / 3;
  EXPECT_DOUBLE_EQ(speed.uncertainty, std::sqrt(variance) / std::sqrt(3));
  EXPECT_DOUBLE_EQ(speed.jitter, 1.4826 * 25);  // deviations from 50: 50, 0, 25
}

TEST(Statistics, StepSpeedWithMovingMeanWeighsTheNewestMost) {
  // Weights 1 and 0.5, newest first.
  const StepSpeed speed = step_speed(90, std::vector{1.0, 4.0}, 0.5);
  EXPECT_DOUBLE_EQ(speed.mean, 90 * 1.5 / (4 + 0.5 * 1));
}

TEST(Statistics, InputCostInThreeUnits) {
  const InputCost cost = input_cost(1000, 800, 100);
  EXPECT_DOUBLE_EQ(cost.percent, 20);
  EXPECT_DOUBLE_EQ(cost.ms_per_step, 25);
  EXPECT_DOUBLE_EQ(cost.img_per_s_lost, 200);
}

TEST(Statistics, DrainingIsAReserveThatFellByMoreThanCountingErrsBy) {
  EXPECT_FALSE(is_draining({.consumed = 21, .start = 7, .end = 7})) << "it did not fall";
  EXPECT_FALSE(is_draining({.consumed = 21, .start = 7, .end = 6})) << "one batch was half made";
  EXPECT_TRUE(is_draining({.consumed = 21, .start = 7, .end = 5}));
  EXPECT_FALSE(is_draining({.consumed = 21, .start = 7, .end = 5, .error = 2}));
  EXPECT_TRUE(is_draining({.consumed = 200, .start = 10, .end = 7.9}));
  EXPECT_FALSE(is_draining({.consumed = 200, .start = 10, .end = 8}));
  EXPECT_FALSE(is_draining({.consumed = 1, .start = 0, .end = 4}));
}

TEST(Statistics, DrainingIsAlsoAWindowThatMayLiveOnBatchesThatWereNotCounted) {
  EXPECT_TRUE(is_draining({.consumed = 20, .start = 5, .end = 5, .outside = 18}));
  EXPECT_FALSE(is_draining({.consumed = 36, .start = 5, .end = 5, .outside = 18}));
}

TEST(Statistics, AReserveThatDidNotFallHidesTheErrorOfItsCountAtMost) {
  EXPECT_DOUBLE_EQ(most_hidden_share({.consumed = 20, .start = 7, .end = 7}), 0.05);
  EXPECT_DOUBLE_EQ(most_hidden_share({.consumed = 20, .start = 7, .end = 9}), 0.05);
  EXPECT_DOUBLE_EQ(most_hidden_share({.consumed = 20, .start = 7, .end = 4}), 0.2);
  EXPECT_DOUBLE_EQ(most_hidden_share({.consumed = 20, .start = 0, .end = 4}), 0);
  EXPECT_DOUBLE_EQ(most_hidden_share({.consumed = 20, .start = 1, .end = 1, .outside = 6}), 0.35);
  EXPECT_DOUBLE_EQ(most_hidden_share({.consumed = 4, .start = 9, .end = 0}), 1);
}

TEST(Statistics, AWindowIsLongEnoughFromTwentyReservesOn) {
  EXPECT_FALSE(is_long_enough({.consumed = 199, .start = 4, .end = 4, .outside = 6}));
  EXPECT_TRUE(is_long_enough({.consumed = 200, .start = 4, .end = 4, .outside = 6}));
  EXPECT_FALSE(is_long_enough({.consumed = 200, .start = 10, .end = 7.9}));
}

}  // namespace
}  // namespace penstock
