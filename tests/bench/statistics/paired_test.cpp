// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/bench/statistics/scipy_values.h"

namespace penstock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<statistics::Pair> scipy_pairs() {
  std::vector<statistics::Pair> pairs;
  for (std::size_t i = 0; i < scipy::kBefore.size(); ++i) {
    pairs.push_back({scipy::kBefore[i], scipy::kAfter[i]});
  }
  return pairs;
}

void expect_interval(const statistics::Estimate& estimate, const scipy::Interval& interval) {
  EXPECT_NEAR(estimate.value, interval.value, 1e-10 * std::abs(interval.value));
  EXPECT_NEAR(estimate.low, interval.low, 1e-9 * std::abs(interval.value));
  EXPECT_NEAR(estimate.high, interval.high, 1e-9 * std::abs(interval.value));
  EXPECT_EQ(estimate.samples, scipy::kBefore.size());
}

/// Pairs with this ratio, whose logs have a standard deviation of exactly `deviation`.
std::vector<statistics::Pair> make_pairs(std::size_t count, double ratio, double deviation) {
  std::vector<statistics::Pair> pairs;
  const double n = static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double off = deviation * std::sqrt((n - 1) / n);
    pairs.push_back({10, 10 * ratio * std::exp(i % 2 == 0 ? off : -off)});
  }
  return pairs;
}

TEST(Paired, IntervalsEqualSciPysTTest) {
  const std::vector<statistics::Pair> pairs = scipy_pairs();
  for (const auto& interval : scipy::kRatio) {
    expect_interval(statistics::paired_ratio(pairs, interval.confidence), interval);
  }
  for (const auto& interval : scipy::kMean) {
    expect_interval(statistics::mean_of_blocks(scipy::kBefore, interval.confidence), interval);
  }
}

TEST(Paired, ARatioTurnedRoundIsItsReciprocal) {
  std::vector<statistics::Pair> turned;
  for (const statistics::Pair& pair : scipy_pairs()) turned.push_back({pair.b, pair.a});
  const statistics::Estimate there = statistics::paired_ratio(scipy_pairs()),
                             back = statistics::paired_ratio(turned);
  EXPECT_NEAR(there.value * back.value, 1, 1e-12);
  EXPECT_NEAR(there.low * back.high, 1, 1e-12);
  EXPECT_NEAR(there.high * back.low, 1, 1e-12);
}

TEST(Paired, OnePairOrNoneTellsNothingOfTheInterval) {
  EXPECT_EQ(statistics::paired_ratio(std::vector<statistics::Pair>{{10, 12}}),
            (statistics::Estimate{std::exp(std::log(12.0) - std::log(10.0)), 0, kInfinity, 1}));
  EXPECT_EQ(statistics::paired_ratio({}), (statistics::Estimate{1, 0, kInfinity, 0}));
  EXPECT_EQ(statistics::mean_of_blocks({}), (statistics::Estimate{0, -kInfinity, kInfinity, 0}));
}

TEST(Paired, EqualValuesHaveAnIntervalWithoutWidth) {
  EXPECT_EQ(statistics::mean_of_blocks(std::vector{0.1, 0.1, 0.1}),
            (statistics::Estimate{0.1, 0.1, 0.1, 3}));
  const statistics::Estimate ratio =
      statistics::paired_ratio(std::vector<statistics::Pair>{{3, 4}, {3, 4}});
  EXPECT_EQ(ratio.low, ratio.high);
  EXPECT_EQ(ratio.value, ratio.low);
}

TEST(Paired, WhatIsNoTimeIsRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(statistics::paired_ratio(std::vector<statistics::Pair>{{0, 1}, {1, 1}}),
               std::logic_error);
  EXPECT_THROW(statistics::paired_ratio(std::vector<statistics::Pair>{{1, kInfinity}, {1, 1}}),
               std::logic_error);
  EXPECT_THROW(statistics::mean_of_blocks(std::vector{1, nan}), std::logic_error);
}

TEST(Paired, AVerdictNeedsTheIntervalAndTheMargin) {
  EXPECT_EQ(statistics::judge(make_pairs(6, 1.05, 0.01), 0.01), statistics::Verdict::slower);
  EXPECT_EQ(statistics::judge(make_pairs(6, 1 / 1.05, 0.01), 0.01), statistics::Verdict::faster);
  EXPECT_EQ(statistics::judge(make_pairs(6, 1.001, 0.001), 0.01), statistics::Verdict::equal);
  // Significant, but neither beyond the margin nor surely within it.
  EXPECT_EQ(statistics::judge(make_pairs(6, 1.0095, 0.002), 0.01), statistics::Verdict::undecided);
  EXPECT_EQ(statistics::judge(make_pairs(6, 1.0095, 0.002), 0), statistics::Verdict::slower);
  // Beyond the margin, but not significant.
  EXPECT_EQ(statistics::judge(make_pairs(6, 1.05, 0.2), 0.01), statistics::Verdict::undecided);
}

TEST(Paired, TwoPairsAreNeverAVerdict) {
  EXPECT_EQ(statistics::judge(make_pairs(2, 1.5, 1e-6), 0.01), statistics::Verdict::undecided);
  EXPECT_EQ(statistics::judge({}, 0.01), statistics::Verdict::undecided);
}

TEST(Paired, ExactTimesAreJudgedExactly) {
  EXPECT_EQ(statistics::judge(make_pairs(4, 1, 0), 0.01), statistics::Verdict::equal);
  EXPECT_EQ(statistics::judge(make_pairs(4, 1.02, 0), 0.01), statistics::Verdict::slower);
}

TEST(Paired, SoManyMorePairsNarrowTheInterval) {
  for (const std::size_t count : {2U, 4U, 10U}) {
    for (const double half_width : {0.1, 0.01, 0.002}) {
      const std::size_t more = statistics::more_pairs(make_pairs(count, 1.3, 0.02), half_width);
      const auto relative = [](const std::vector<statistics::Pair>& pairs) {
        const statistics::Estimate ratio = statistics::paired_ratio(pairs);
        return ratio.high / ratio.value - 1;
      };
      // make_pairs() needs an even number for an exact spread.
      const std::size_t then = count + more;
      EXPECT_LE(relative(make_pairs(then + then % 2, 1.3, 0.02)), half_width * (1 + 1e-9));
      if (more > 0 && then > 3) {
        EXPECT_GT(relative(make_pairs(then - 1 - (then - 1) % 2, 1.3, 0.02)), half_width);
      }
    }
  }
  EXPECT_EQ(statistics::more_pairs(make_pairs(2, 1.3, 0), 0.01), 0);
  EXPECT_EQ(statistics::more_pairs(make_pairs(4, 1.3, 0.5), 1e-6), statistics::kMostPairs);
}

TEST(Paired, TheDetectableEffectIsNearThatOfTheNoncentralDistribution) {
  const std::vector<statistics::Pair> pairs = make_pairs(4, 1, 0.02);
  for (const auto& [planned, effect] : scipy::kEffects) {
    const double exact = std::expm1(effect * 0.02 / std::sqrt(planned));
    EXPECT_NEAR(statistics::detectable_effect(pairs, planned), exact,
                (planned == 3 ? 0.07 : 0.03) * exact);
  }
  EXPECT_EQ(statistics::detectable_effect(make_pairs(4, 1.2, 0), 10), 0);
}

}  // namespace
}  // namespace penstock
