// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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

TEST(Statistics, DrainingIsAShortWindowOrAFallingReserve) {
  EXPECT_TRUE(is_draining(10, 10, 199));
  EXPECT_FALSE(is_draining(10, 10, 200));
  EXPECT_TRUE(is_draining(10, 7.9, 200));
  EXPECT_FALSE(is_draining(10, 8, 200));
  EXPECT_FALSE(is_draining(0, 4, 1));
}

}  // namespace
}  // namespace penstock
