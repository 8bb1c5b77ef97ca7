// SPDX-License-Identifier: Apache-2.0
// Formulas are numbered as in the NIST Digital Library of Mathematical Functions (DLMF,
// dlmf.nist.gov).
#include "bench/statistics/distributions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "dataflow/error.h"

namespace penstock::statistics {
namespace {

/// std::lgamma writes a global variable, so it is not used. `z` > 0.
double log_gamma(double z) {
  int sign = 0;
  return lgamma_r(z, &sign);
}

double log_beta(double a, double b) { return log_gamma(a) + log_gamma(b) - log_gamma(a + b); }

/// ln B(a, 1/2). For a large a both gamma functions are huge and nearly equal. Their ratio then
/// comes from its asymptotic series (DLMF 5.11.13), whose first omitted term is below 1e-13.
double log_beta_half(double a) {
  if (a < 100) return log_beta(a, 0.5);
  const double r = 1 / a;
  const double series =
      1 - r / 8 * (1 - r / 16 * (1 + r * 5 / 8 * (1 - r * 21 / 160 * (1 + r * 19 / 4))));
  return std::log(std::numbers::pi) / 2 - std::log(a) / 2 - std::log(series);
}

/// The continued fraction of DLMF 8.17.22 by Lentz's method as modified by Thompson and Barnett
/// (1986). It converges fast for x < (a + 1) / (a + b + 2), in about sqrt(max(a, b)) terms.
double beta_fraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  constexpr double kPrecision = 1e-15;
  constexpr int kMostTerms = 100000;
  double c = 1, d = 0, value = 1;
  const auto step = [&](double numerator) {
    d = 1 + numerator * d;
    if (std::abs(d) < kTiny) d = kTiny;
    d = 1 / d;
    c = 1 + numerator / c;
    if (std::abs(c) < kTiny) c = kTiny;
    value *= c * d;
  };
  for (int m = 0; m < kMostTerms; ++m) {
    if (m > 0) step(m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)));
    step(-(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)));
    if (std::abs(c * d - 1) < kPrecision) break;
  }
  return 1 / value;
}

/// Regularised incomplete beta function I_x(a, b), from unrounded x and y = 1 - x.
double incomplete_beta(double x, double y, double a, double b, double log_beta_ab) {
  if (x <= 0) return 0;
  if (y <= 0) return 1;
  const double log_x = x < 0.5 ? std::log(x) : std::log1p(-y);
  const double log_y = y < 0.5 ? std::log(y) : std::log1p(-x);
  const double front = std::exp(a * log_x + b * log_y - log_beta_ab);
  if (x < (a + 1) / (a + b + 2)) return front / a * beta_fraction(x, a, b);
  return 1 - front / b * beta_fraction(y, b, a);
}

/// Beyond this, x of the continued fraction is too near to 1 for a relative error below 1e-9.
constexpr double kNearlyNormal = 1e7;

double normal_density(double t) {
  return std::exp(-t * t / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

/// P(T > t) for t >= 0: I_x(freedom / 2, 1 / 2) / 2 with x = freedom / (freedom + t^2) (26.5.27
/// of Abramowitz and Stegun 1964); for large freedom the first term of the density's
/// expansion in 1 / freedom, integrated.
double student_t_tail(double t, double freedom) {
  if (freedom > kNearlyNormal) {
    const double normal = std::erfc(t / std::numbers::sqrt2) / 2;
    return std::isinf(t) ? 0 : normal + normal_density(t) * t * (t * t + 1) / (4 * freedom);
  }
  const double odds = t / freedom * t;
  if (std::isinf(odds)) return 0;
  return incomplete_beta(1 / (1 + odds), odds / (1 + odds), freedom / 2, 0.5,
                         log_beta_half(freedom / 2)) /
         2;
}

double student_t_density(double t, double freedom) {
  if (freedom > kNearlyNormal) return normal_density(t);
  return std::exp(-(freedom + 1) / 2 * std::log1p(t / freedom * t) - log_beta_half(freedom / 2)) /
         std::sqrt(freedom);
}

}  // namespace

double student_t_cdf(double t, double freedom) {
  PENSTOCK_ASSERT(!std::isnan(t) && freedom > 0);
  return t < 0 ? student_t_tail(-t, freedom) : 1 - student_t_tail(t, freedom);
}

double student_t_quantile(double probability, double freedom) {
  PENSTOCK_ASSERT(probability >= 0 && probability <= 1 && freedom > 0);
  if (probability > 0.5) return -student_t_quantile(1 - probability, freedom);
  if (probability == 0) return -std::numeric_limits<double>::infinity();
  // The tail is convex, so Newton's steps from the middle never overshoot.
  double t = 0;
  for (double step = 1; step > 1e-15 * t;) {
    step = (student_t_tail(t, freedom) - probability) / student_t_density(t, freedom);
    if (!(step > 0)) break;
    t += step;
  }
  return -t;
}

double binomial_cdf(std::size_t successes, std::size_t trials, double probability) {
  PENSTOCK_ASSERT(probability >= 0 && probability <= 1);
  if (successes >= trials) return 1;
  // P(X <= s) = I_q(n - s, s + 1) with q = 1 - probability (DLMF 8.17.5).
  const auto failures = static_cast<double>(trials - successes);
  const double next = static_cast<double>(successes) + 1;
  return incomplete_beta(1 - probability, probability, failures, next, log_beta(failures, next));
}

}  // namespace penstock::statistics
