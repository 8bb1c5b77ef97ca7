// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/scaling_law.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/bench/statistics/scipy_values.h"

namespace penstock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Points on a law, `blocks` values each. Value k differs by k % of `noise` up or down.
std::vector<statistics::ScalingPoint> on_law(const statistics::ScalingLaw& law,
                                             const std::vector<double>& threads,
                                             std::size_t blocks = 3, double noise = 0) {
  std::vector<statistics::ScalingPoint> points;
  for (const double n : threads) {
    statistics::ScalingPoint point{n, {}};
    for (std::size_t k = 0; k < blocks; ++k) {
      const double sign = (k + points.size()) % 2 == 0 ? 1 : -1;
      point.img_per_s.push_back(law.rate(n) * (1 + sign * noise));
    }
    points.push_back(point);
  }
  return points;
}

void expect_law(const statistics::ScalingLaw& found, const statistics::ScalingLaw& law,
                double tolerance) {
  EXPECT_NEAR(found.lambda, law.lambda, tolerance * law.lambda);
  EXPECT_NEAR(found.sigma, law.sigma, tolerance);
  EXPECT_NEAR(found.kappa, law.kappa, tolerance);
}

void expect_sane(const statistics::Estimate& estimate) {
  EXPECT_FALSE(std::isnan(estimate.value) || std::isnan(estimate.low) || std::isnan(estimate.high));
  EXPECT_LE(estimate.low, estimate.value);
  EXPECT_LE(estimate.value, estimate.high);
}

TEST(ScalingLaw, RatesByHand) {
  const statistics::ScalingLaw law{100, 0.1, 0.01};
  EXPECT_DOUBLE_EQ(law.rate(1), 100);
  EXPECT_DOUBLE_EQ(law.rate(4), 400 / 1.42);
  EXPECT_DOUBLE_EQ(law.rate(0.25), 25);  // a share of one thread
  EXPECT_DOUBLE_EQ(law.rate(0), 0);
}

TEST(ScalingLaw, PeaksByHand) {
  // sqrt((1 - sigma) / kappa)
  EXPECT_EQ((statistics::ScalingLaw{100, 0.1, 0.001}).peak_threads(), 30);
  EXPECT_EQ((statistics::ScalingLaw{100, 0.2, 0.01}).peak_threads(), 9);  // 8.94
  EXPECT_EQ((statistics::ScalingLaw{100, 0.1, 0}).peak_threads(), std::nullopt);
  EXPECT_EQ((statistics::ScalingLaw{100, 1.5, 0}).peak_threads(), 1);
  EXPECT_EQ((statistics::ScalingLaw{100, 0, 3}).peak_threads(), 1);
}

TEST(ScalingLaw, AFitOfExactRatesFindsTheLaw) {
  for (const statistics::ScalingLaw& law :
       {statistics::ScalingLaw{100, 0.03, 0.002}, statistics::ScalingLaw{2500, 0.2, 0},
        statistics::ScalingLaw{80, 0, 0.01}, statistics::ScalingLaw{1, 0, 0}}) {
    expect_law(statistics::fit_scaling_law(on_law(law, {1, 2, 4, 8, 16})), law, 1e-9);
    expect_law(statistics::fit_scaling_law(on_law(law, {1, 2, 3})), law, 1e-9);
    expect_law(statistics::fit_scaling_law(on_law(law, {2, 5, 64})), law, 1e-6);
  }
}

TEST(ScalingLaw, AFitOfNoisyRatesIsNearTheLaw) {
  const statistics::ScalingLaw law{100, 0.05, 0.002};
  expect_law(statistics::fit_scaling_law(on_law(law, {1, 2, 4, 8, 16, 32}, 4, 0.02)), law, 0.01);
}

TEST(ScalingLaw, FitsEqualSciPysNonNegativeLeastSquares) {
  for (const auto& [points, lambda, sigma, kappa] : scipy::kFits) {
    std::vector<statistics::ScalingPoint> ours;
    for (const auto& [threads, rates] : points) ours.push_back({threads, rates});
    expect_law(statistics::fit_scaling_law(ours), {lambda, sigma, kappa}, 1e-9);
  }
}

TEST(ScalingLaw, FewPointsGiveFewParameters) {
  expect_law(statistics::fit_scaling_law(std::vector<statistics::ScalingPoint>{{4, {100, 100}}}),
             {25, 0, 0}, 1e-12);
  // Twice as many threads, 1.6 times the rate: 2 / (1 + sigma) = 1.6
  expect_law(
      statistics::fit_scaling_law(std::vector<statistics::ScalingPoint>{{1, {100}}, {2, {160}}}),
      {100, 0.25, 0}, 1e-12);
  // The same number of threads twice is one.
  expect_law(
      statistics::fit_scaling_law(std::vector<statistics::ScalingPoint>{{2, {100}}, {2, {100}}}),
      {50, 0, 0}, 1e-12);
}

TEST(ScalingLaw, EqualRatesAreASerialStage) {
  const statistics::ScalingLaw law = statistics::fit_scaling_law(
      std::vector<statistics::ScalingPoint>{{1, {70}}, {2, {70}}, {4, {70}}, {8, {70}}});
  expect_law(law, {70, 1, 0}, 1e-9);
  EXPECT_NEAR(law.rate(100), 70, 1e-6);
}

TEST(ScalingLaw, FallingRatesPeakAtTheFirst) {
  const std::vector<statistics::ScalingPoint> two{{1, {100, 100}}, {2, {80, 80}}};
  EXPECT_EQ(statistics::fit_scaling_law(two).peak_threads(), 1);
  const statistics::ThreadsNeeded needed = statistics::threads_needed(two, 120, 1);
  EXPECT_FALSE(needed.reachable);
  EXPECT_NEAR(needed.peak_img_per_s.value, 100, 1e-9);
  // Without a rate of one thread, a single thread is not assumed to supply more than was measured.
  const statistics::ScalingLaw law = statistics::fit_scaling_law(
      std::vector<statistics::ScalingPoint>{{2, {100}}, {3, {20}}, {4, {1}}});
  EXPECT_LE(law.lambda, 100 * (1 + 1e-12));
  EXPECT_EQ(law.peak_threads(), 1);
}

TEST(ScalingLaw, BetterThanLinearIsTakenForLinear) {
  const statistics::ScalingLaw law = statistics::fit_scaling_law(
      std::vector<statistics::ScalingPoint>{{1, {100}}, {2, {230}}, {4, {500}}});
  EXPECT_EQ(law.sigma, 0);
  EXPECT_EQ(law.kappa, 0);
  EXPECT_GT(law.lambda, 100);
}

TEST(ScalingLaw, BlocksThatSuppliedNothingAreLeftOut) {
  const statistics::ScalingLaw law{100, 0.1, 0.01};
  std::vector<statistics::ScalingPoint> points = on_law(law, {1, 2, 4});
  points[1].img_per_s[2] = 0;
  points.push_back({8, {0, 0, 0}});
  points.push_back({16, {}});
  expect_law(statistics::fit_scaling_law(points), law, 1e-9);
  const statistics::ThreadsNeeded needed = statistics::threads_needed(points, law.rate(3), 1);
  EXPECT_NEAR(needed.threads.value, 3, 1e-9);
  expect_sane(needed.threads);
  EXPECT_THROW(statistics::fit_scaling_law({}), std::logic_error);
  EXPECT_THROW(statistics::fit_scaling_law(std::vector<statistics::ScalingPoint>{{1, {0}}}),
               std::logic_error);
}

TEST(ScalingLaw, KnowsNothingBeyondFewerThanFourThreadCounts) {
  const statistics::ScalingLaw law{100, 0.1, 0};
  const auto needed = [&](const std::vector<double>& threads, double demand) {
    return statistics::threads_needed(on_law(law, threads), demand, 1, 20);
  };
  EXPECT_FALSE(needed({1, 2, 4}, 2000).known) << "not reachable";
  EXPECT_FALSE(needed({1, 2, 4}, law.rate(6)).known);
  EXPECT_TRUE(needed({1, 2, 4}, law.rate(3)).known) << "measured";
  EXPECT_TRUE(needed({1, 2, 4, 8}, 2000).known);
  EXPECT_TRUE(needed({1, 2, 4, 8}, law.rate(12)).known);
}

TEST(ScalingLaw, WhatFewThreadCountsNeedAtLeastIsWhatOneThreadsBestRateTells) {
  const std::vector<statistics::ScalingPoint> points = {{1, {574}}, {2, {900}}};
  const statistics::ThreadsNeeded needed = statistics::threads_needed(points, 1500, 1);
  ASSERT_TRUE(needed.reachable);
  EXPECT_FALSE(needed.known);
  EXPECT_EQ(needed.whole, 3) << "1500 / 574, whatever a law of two points says";
}

TEST(ScalingLaw, KnowsNothingOfADemandThatThePeaksIntervalCovers) {
  const std::vector<statistics::ScalingPoint> points = {
      {1, {100, 90, 110}}, {2, {180, 150, 170}}, {4, {270, 190, 260}}, {8, {310, 220, 330}}};
  const statistics::ThreadsNeeded needed = statistics::threads_needed(points, 1e5, 1);
  ASSERT_FALSE(needed.reachable);
  const double between =
      (needed.peak_img_per_s.value + std::min(needed.peak_img_per_s.high, 9e4)) / 2;
  EXPECT_FALSE(statistics::threads_needed(points, between, 1).known);
}

TEST(ScalingLaw, ThreadsNeededAreExactOnExactRates) {
  const statistics::ScalingLaw law{100, 0.03, 0.002};  // peaks at 22
  for (const double threads : {0.4, 1.0, 2.5, 7.0, 15.0}) {
    const statistics::ThreadsNeeded needed =
        statistics::threads_needed(on_law(law, {1, 2, 4, 8}), law.rate(threads), 1, 20);
    ASSERT_TRUE(needed.reachable);
    EXPECT_NEAR(needed.threads.value, threads, 1e-6);
    EXPECT_NEAR(needed.threads.low, threads, 1e-6);
    EXPECT_NEAR(needed.threads.high, threads, 1e-6);
    EXPECT_EQ(needed.whole, std::ceil(threads));
    EXPECT_EQ(needed.measured_to, 8);
    EXPECT_EQ(needed.threads.samples, 3);
  }
}

TEST(ScalingLaw, WhatNoNumberOfThreadsSuppliesIsNotReachable) {
  const statistics::ScalingLaw law{100, 0.03, 0.002};
  const double peak = law.rate(22);
  const statistics::ThreadsNeeded needed =
      statistics::threads_needed(on_law(law, {1, 2, 4, 8}), 1.01 * peak, 1, 20);
  EXPECT_FALSE(needed.reachable);
  EXPECT_NEAR(needed.peak_img_per_s.value, peak, 1e-6);
  EXPECT_EQ(needed.threads, statistics::Estimate{});
  // The limit lambda / sigma, which rates approach and never reach.
  const statistics::ThreadsNeeded limited =
      statistics::threads_needed(on_law({100, 0.1, 0}, {1, 2, 4}), 1000.1, 1, 20);
  EXPECT_FALSE(limited.reachable);
  EXPECT_FALSE(limited.known) << "three thread counts";
  EXPECT_NEAR(limited.peak_img_per_s.value, 1000, 1e-6);
}

TEST(ScalingLaw, ADemandAtThePeakIsReachedByAWholeNumberOfThreadsOrNotAtAll) {
  const statistics::ScalingLaw law{100, 0,
                                   1 / 20.25};  // the maximum is at 4.5, between whole numbers
  const double between = 450 / (1 + 4.5 * 3.5 / 20.25);
  EXPECT_FALSE(statistics::threads_needed(on_law(law, {1, 2, 4}), between, 1, 20).reachable);
  const statistics::ThreadsNeeded needed =
      statistics::threads_needed(on_law(law, {1, 2, 4}), law.rate(4), 1, 20);
  EXPECT_TRUE(needed.reachable);
  EXPECT_EQ(needed.whole, 4);
}

TEST(ScalingLaw, OneBlockIsNeverConfident) {
  const statistics::ScalingLaw law{100, 0.03, 0.002};
  const statistics::ThreadsNeeded needed =
      statistics::threads_needed(on_law(law, {1, 2, 4}, 1), law.rate(3), 1, 20);
  EXPECT_NEAR(needed.threads.value, 3, 1e-6);
  EXPECT_EQ(needed.threads.low, 0);
  EXPECT_EQ(needed.threads.high, kInfinity);
  const statistics::Estimate rate = statistics::rate_at(on_law(law, {1, 2, 4}, 1), 3, 1, 20);
  EXPECT_EQ(rate.low, 0);
  EXPECT_EQ(rate.high, kInfinity);
}

TEST(ScalingLaw, TheDemandCrossesTheBandWhereTheIntervalOfThreadsEnds) {
  const std::vector<statistics::ScalingPoint> points{
      {1, {100, 103, 98}}, {2, {190, 185, 188}}, {4, {330, 345, 341}}, {8, {520, 540, 517}}};
  const statistics::ThreadsNeeded needed = statistics::threads_needed(points, 450, 7);
  expect_sane(needed.threads);
  EXPECT_NEAR(statistics::rate_at(points, needed.threads.value, 7).value, 450, 1e-6);
  EXPECT_NEAR(statistics::rate_at(points, needed.threads.low, 7).high, 450, 1e-3);
  EXPECT_NEAR(statistics::rate_at(points, needed.threads.high, 7).low, 450, 1e-3);
  EXPECT_EQ(statistics::threads_needed(points, 450, 7).threads, needed.threads);
}

TEST(ScalingLaw, NoInputGivesWhatIsNoNumber) {
  const std::vector<std::vector<statistics::ScalingPoint>> inputs{
      {{1, {100}}},
      {{8, {1e-300, 1e-300}}},
      {{1, {100, 200}}, {2, {50, 400}}},
      {{1, {1e9, 1e9}}, {64, {1, 1}}},
      {{1, {1, 1}}, {64, {1e9, 1e9}}},
      {{1, {70, 70}}, {2, {70, 70}}, {3, {70, 70}}},
      {{3, {9, 8, 7}}, {2, {1}}, {1, {5, 5}}},
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE(i);
    for (const double demand : {1e-3, 60.0, 1e12}) {
      const statistics::ThreadsNeeded needed = statistics::threads_needed(inputs[i], demand, 1, 50);
      expect_sane(needed.threads);
      expect_sane(needed.peak_img_per_s);
    }
    for (const double threads : {0.0, 0.5, 1.0, 1e6}) {
      expect_sane(statistics::rate_at(inputs[i], threads, 1, 50));
    }
  }
}

}  // namespace
}  // namespace penstock
