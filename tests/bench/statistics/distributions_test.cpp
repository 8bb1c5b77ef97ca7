// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/distributions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/bench/statistics/scipy_values.h"

namespace penstock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Distributions, QuantilesOfStudentsTEqualSciPy) {
  for (const auto& [freedom, probability, quantile] : scipy::kStudentT) {
    SCOPED_TRACE(testing::Message() << probability << " at " << freedom);
    EXPECT_NEAR(statistics::student_t_quantile(probability, freedom), quantile,
                1e-9 * std::abs(quantile));
    EXPECT_NEAR(statistics::student_t_cdf(quantile, freedom), probability, 1e-9 * probability);
  }
}

TEST(Distributions, StudentsTOfOneAndTwoDegreesHasClosedForms) {
  for (const double t : {-300.0, -2.0, -0.1, 0.0, 0.7, 5.0}) {
    EXPECT_NEAR(statistics::student_t_cdf(t, 1), 0.5 + std::atan(t) / M_PI, 1e-14);
    EXPECT_NEAR(statistics::student_t_cdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-14);
  }
}

TEST(Distributions, StudentsTOfManyDegreesGoesOverIntoTheNormalDistribution) {
  for (const double probability : {1e-6, 0.025, 0.4, 0.975}) {
    const double normal = statistics::student_t_quantile(probability, kInfinity);
    EXPECT_NEAR(std::erfc(-normal / std::sqrt(2)) / 2, probability, 1e-12 * probability);
    // On both sides of the change of method.
    const double below = statistics::student_t_quantile(probability, 0.999e7);
    const double above = statistics::student_t_quantile(probability, 1.001e7);
    EXPECT_NEAR(below, above, 1e-8 * std::abs(above));
    EXPECT_NEAR(above, normal, 1e-5);
  }
}

TEST(Distributions, StudentsTEndsInfinitelyFarOut) {
  for (const double freedom : {0.5, 1.0, 30.0, kInfinity}) {
    EXPECT_EQ(statistics::student_t_quantile(0, freedom), -kInfinity);
    EXPECT_EQ(statistics::student_t_quantile(1, freedom), kInfinity);
    EXPECT_EQ(statistics::student_t_quantile(0.5, freedom), 0);
    EXPECT_EQ(statistics::student_t_cdf(-kInfinity, freedom), 0);
    EXPECT_EQ(statistics::student_t_cdf(kInfinity, freedom), 1);
    EXPECT_EQ(statistics::student_t_cdf(0, freedom), 0.5);
  }
}

TEST(Distributions, BinomialProbabilitiesEqualSciPy) {
  for (const auto& [successes, trials, probability, cdf] : scipy::kBinomial) {
    SCOPED_TRACE(testing::Message() << successes << " of " << trials << " at " << probability);
    EXPECT_NEAR(statistics::binomial_cdf(successes, trials, probability), cdf, 1e-11 * cdf);
  }
}

TEST(Distributions, BinomialOfCertainTrialsIsCertain) {
  EXPECT_EQ(statistics::binomial_cdf(0, 10, 0), 1);
  EXPECT_EQ(statistics::binomial_cdf(9, 10, 1), 0);
  EXPECT_EQ(statistics::binomial_cdf(10, 10, 1), 1);
  EXPECT_EQ(statistics::binomial_cdf(12, 10, 0.4), 1);
  EXPECT_EQ(statistics::binomial_cdf(0, 0, 0.4), 1);
}

TEST(Distributions, NoNumberIsRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(statistics::student_t_quantile(0.5, 0), std::logic_error);
  EXPECT_THROW(statistics::student_t_quantile(nan, 3), std::logic_error);
  EXPECT_THROW(statistics::student_t_cdf(nan, 3), std::logic_error);
  EXPECT_THROW(statistics::binomial_cdf(1, 2, 1.5), std::logic_error);
}

}  // namespace
}  // namespace penstock
