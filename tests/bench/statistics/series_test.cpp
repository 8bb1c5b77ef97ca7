// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "bench/statistics/distributions.h"
#include "dataflow/random.h"
#include "tests/bench/statistics/scipy_values.h"

namespace penstock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Times of about 20 with noise of +- `noise`, plus `transient` of the index.
template <typename Transient>
std::vector<double> make_times(std::size_t steps, double noise, Transient transient,
                               std::uint64_t seed = 11) {
  Random random(seed);
  std::vector<double> times;
  for (std::size_t k = 0; k < steps; ++k) {
    times.push_back(20 + random.uniform(-noise, noise) + transient(static_cast<double>(k)));
  }
  return times;
}
const auto kNone = [](double) { return 0.0; };

double middle(std::span<const double> values) { return statistics::quantile(values, 0.5); }

TEST(Series, QuantilesEqualNumPy) {
  for (const auto& [share, value] : scipy::kQuantiles) {
    EXPECT_NEAR(statistics::quantile(scipy::kSample, share), value, 1e-12 * value);
  }
}

TEST(Series, QuantilesOfFewValues) {
  EXPECT_EQ(statistics::quantile({}, 0.5), 0);
  EXPECT_EQ(statistics::quantile(std::vector{7.0}, 0.99), 7);
  EXPECT_EQ(statistics::quantile(std::vector{2.0, 1.0}, 0.5), 1.5);
  EXPECT_EQ(statistics::quantile(std::vector{2.0, 1.0}, 1.5), 2);
  EXPECT_EQ(statistics::quantile(std::vector{2.0, 1.0}, -1), 1);
}

TEST(Series, AutocorrelationTimeIsThatOfNumPy) {
  EXPECT_NEAR(statistics::autocorrelation_time(scipy::kSeries), scipy::kAutocorrelationTime, 1e-9);
}

TEST(Series, AutocorrelationTimeIsOneOfWhatTellsNothingElse) {
  EXPECT_EQ(statistics::autocorrelation_time({}), 1);
  EXPECT_EQ(statistics::autocorrelation_time(std::vector{1.0, 2.0, 3.0}), 1);
  EXPECT_EQ(statistics::autocorrelation_time(std::vector(100, 0.1)), 1);
  EXPECT_EQ(statistics::autocorrelation_time(std::vector{1.0, 2.0, 1.0, 2.0, 1.0, 2.0}), 1);
}

TEST(Series, WarmUpIsWhereAStepOfTimesEnds) {
  for (const int length : {5, 25, 60}) {
    const auto times = make_times(200, 0.5, [=](double k) { return k < length ? 30.0 : 0.0; });
    EXPECT_EQ(statistics::find_warm_up(times, 0).steps, static_cast<std::size_t>(length));
  }
}

TEST(Series, WarmUpHoldsMostOfADecay) {
  const auto times = make_times(400, 0.5, [](double k) { return 50 * std::exp(-k / 15); });
  const statistics::WarmUp warm_up = statistics::find_warm_up(times, 0);
  EXPECT_GE(warm_up.steps, 45);  // 2.5 ms are left of 50
  EXPECT_LE(warm_up.steps, 150);
  EXPECT_FALSE(warm_up.drifting);
}

TEST(Series, WarmUpHasAFloorAndEndsAtHalf) {
  EXPECT_EQ(statistics::find_warm_up(std::vector(100, 20.0), 0).steps, 0);
  EXPECT_EQ(statistics::find_warm_up(std::vector(100, 20.0), 17).steps, 17);
  const auto late = make_times(100, 0.5, [](double k) { return k < 80 ? 30.0 : 0.0; });
  EXPECT_LE(statistics::find_warm_up(late, 0).steps, 50);
  EXPECT_EQ(statistics::find_warm_up(late, 70).steps, 70);
  EXPECT_EQ(statistics::find_warm_up(late, 1000).steps, 100);
}

TEST(Series, WarmUpOfShortSeriesIsItsFloor) {
  for (std::size_t steps = 0; steps < 30; ++steps) {
    const auto times = make_times(steps, 0.5, [](double k) { return k < 1 ? 30.0 : 0.0; });
    const statistics::WarmUp none = statistics::find_warm_up(times, 0);
    EXPECT_EQ(none.steps, steps < 30 ? 0 : 5);
    EXPECT_EQ(statistics::find_warm_up(times, 3).steps, std::min<std::size_t>(3, steps));
    EXPECT_TRUE(std::isfinite(none.drift_percent));
  }
}

TEST(Series, DriftIsASlopeThatIsBeyondDoubtAndMatters) {
  const auto drift_of = [](double noise, double rise) {
    return statistics::find_warm_up(
        make_times(300, noise, [=](double k) { return rise * k / 300; }), 0);
  };
  EXPECT_TRUE(drift_of(0.1, 1).drifting);
  EXPECT_TRUE(drift_of(0.1, -1).drifting);
  EXPECT_FALSE(drift_of(0.1, 0.2).drifting);                               // half a per cent
  EXPECT_FALSE(drift_of(10, 0.5).drifting);                                // hidden by noise
  EXPECT_NEAR(drift_of(0.01, 0.8).drift_percent, 100 * 0.4 / 20.6, 0.02);  // of the later half
  EXPECT_FALSE(statistics::find_warm_up(std::vector(50, 0.0), 0).drifting);
}

TEST(Series, DriftIsTheSlopeOfSciPy) {
  const statistics::WarmUp warm_up = statistics::find_warm_up(scipy::kRising, 0);
  ASSERT_EQ(warm_up.steps, 25);
  EXPECT_TRUE(warm_up.drifting);
  const auto rest = std::span(scipy::kRising).subspan(warm_up.steps);
  EXPECT_NEAR(warm_up.drift_percent,
              100 * 35.0 / 3 * scipy::kSlopePerThree / statistics::quantile(rest, 0.5), 1e-9);
}

TEST(Series, TheIntervalOfAMeanByHand) {
  // Alternating +-1: the autocorrelation time is 1, and 6 batches of 3 spread less than the values.
  std::vector<double> times;
  for (int k = 0; k < 18; ++k) times.push_back(k % 2 == 0 ? 11 : 9);
  const statistics::Estimate estimate = statistics::mean_of_series(times);
  EXPECT_DOUBLE_EQ(estimate.value, 10);
  EXPECT_NEAR(estimate.half_width(), statistics::student_t_quantile(0.975, 5) / std::sqrt(17),
              1e-12);
  EXPECT_EQ(estimate.samples, 18);
  // Runs of three: the batches are the runs.
  times = {11, 11, 11, 9, 9, 9, 9, 9, 9, 11, 11, 11, 9, 9, 9, 11, 11, 11};
  const double by_batches = std::sqrt(6.0 / 5 / 6) * statistics::student_t_quantile(0.975, 5);
  EXPECT_GE(statistics::mean_of_series(times).half_width(), by_batches - 1e-12);
  EXPECT_LT(statistics::mean_of_series(times).samples, 18);
}

TEST(Series, OneValueOrNoneIsNeverConfident) {
  EXPECT_EQ(statistics::mean_of_series({}), (statistics::Estimate{0, -kInfinity, kInfinity, 0}));
  EXPECT_EQ(statistics::mean_of_series(std::vector{5.0}),
            (statistics::Estimate{5, -kInfinity, kInfinity, 1}));
  const statistics::Estimate two = statistics::mean_of_series(std::vector{4.0, 6.0});
  EXPECT_NEAR(two.half_width(), statistics::student_t_quantile(0.975, 1), 1e-12);
}

TEST(Series, AConstantSeriesHasAnIntervalWithoutWidth) {
  EXPECT_EQ(statistics::mean_of_series(std::vector(57, 0.1)),
            (statistics::Estimate{0.1, 0.1, 0.1, 57}));
  EXPECT_EQ(statistics::bootstrap_series(std::vector(57, 0.1), middle, 3, 1),
            (statistics::Estimate{0.1, 0.1, 0.1, 19}));
}

TEST(Series, TheBootstrapOfAMeanIsNearTheIntervalOfAMean) {
  const auto times = make_times(300, 2, kNone);
  const statistics::Estimate drawn = statistics::bootstrap_series(times, statistics::mean, 3, 1);
  EXPECT_EQ(drawn.samples, 100);
  // Uniform noise of +-2 has a variance of 4/3.
  EXPECT_NEAR(drawn.half_width(), 1.96 * std::sqrt(4.0 / 3 / 300), 0.02);
  EXPECT_NEAR((drawn.low + drawn.high) / 2, drawn.value, 0.02);
  EXPECT_EQ(statistics::bootstrap_series(times, statistics::mean, 3, 1), drawn);
  EXPECT_NE(statistics::bootstrap_series(times, statistics::mean, 3, 2), drawn);
}

/// By Student's t of eight values; plain percentiles of the draws would be 23 % narrower.
TEST(Series, TheBootstrapOfFewValuesIsAsWideAsTheirInterval) {
  constexpr int kSeries = 50, kValues = 8;
  double widths = 0;
  for (std::uint64_t seed = 1; seed <= kSeries; ++seed) {
    const auto times = make_times(kValues, 2, kNone, seed);
    const double squares = statistics::squares_about_mean(times);
    const double expected = statistics::student_t_quantile(0.975, kValues - 1) *
                            std::sqrt(squares / (kValues - 1) / kValues);
    widths += statistics::bootstrap_series(times, statistics::mean, 1, seed).half_width() /
              expected / kSeries;
  }
  EXPECT_NEAR(widths, 1, 0.08);
}

TEST(Series, TheBootstrapIsNotSureOfFewOrLongBlocks) {
  EXPECT_EQ(statistics::bootstrap_series({}, middle, 3, 1),
            (statistics::Estimate{0, -kInfinity, kInfinity, 0}));
  EXPECT_EQ(statistics::bootstrap_series(std::vector{1.0, 2.0, 3.0}, middle, 3, 1),
            (statistics::Estimate{2, -kInfinity, kInfinity, 3}));
  const auto times = make_times(60, 2, kNone);
  for (const std::size_t block : {0U, 10U, 1000U}) {
    const statistics::Estimate estimate = statistics::bootstrap_series(times, middle, block, 1);
    EXPECT_GT(estimate.half_width(), 0.1);
    EXPECT_EQ(estimate.samples, block == 0 ? 60 : 6);
  }
}

TEST(Series, WhatIsNoNumberIsRefused) {
  const std::vector<double> series{1, std::numeric_limits<double>::quiet_NaN(), 3, 4, 5, 6, 7};
  EXPECT_THROW(statistics::find_warm_up(series, 0), std::logic_error);
  EXPECT_THROW(statistics::autocorrelation_time(series), std::logic_error);
  EXPECT_THROW(statistics::mean_of_series(series), std::logic_error);
  EXPECT_THROW(statistics::quantile(series, 0.5), std::logic_error);
  EXPECT_THROW(statistics::bootstrap_series(series, middle, 1, 1), std::logic_error);
}

}  // namespace
}  // namespace penstock
