// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/unpaired.h"

#include <algorithm>
#include <cmath>

#include "bench/statistics/distributions.h"
#include "bench/statistics/paired.h"

namespace penstock::statistics {
namespace {

/// Mean of logarithms, and the variance of that mean.
struct LogMean {
  double mean = 0, variance = 0;
  double count = 0;
};

LogMean log_mean(std::span<const double> values) {
  LogMean result{.count = static_cast<double>(values.size())};
  double sum = 0, squares = 0;
  for (const double value : values) {  // relative to the first, so that equal values have no spread
    const double off = std::log(value / values.front());
    sum += off;
    squares += off * off;
  }
  result.mean = std::log(values.front()) + sum / result.count;
  if (values.size() < 2) return result;
  squares = std::max(0.0, squares - sum * sum / result.count);
  result.variance = squares / (result.count - 1) / result.count;
  return result;
}

/// Degrees of freedom by Welch and Satterthwaite, for a variance above 0.
double freedom(const LogMean& a, const LogMean& b) {
  const double sum = a.variance + b.variance;
  return sum * sum /
         (a.variance * a.variance / (a.count - 1) + b.variance * b.variance / (b.count - 1));
}

}  // namespace

Estimate unpaired_ratio(std::span<const double> a, std::span<const double> b, double confidence) {
  const LogMean before = log_mean(a), after = log_mean(b);
  const double difference = after.mean - before.mean;
  Estimate ratio{.value = std::exp(difference), .samples = std::min(a.size(), b.size())};
  if (ratio.samples < 2) {
    ratio.high = kInfinity;
    return ratio;
  }
  const double error = std::sqrt(before.variance + after.variance);
  const double reach =
      error > 0 ? error * student_t_quantile((1 + confidence) / 2, freedom(before, after)) : 0;
  ratio.low = std::exp(difference - reach);
  ratio.high = std::exp(difference + reach);
  return ratio;
}

Verdict judge_unpaired(std::span<const double> a, std::span<const double> b, double margin) {
  if (std::min(a.size(), b.size()) < 3) return Verdict::undecided;
  return verdict_of(unpaired_ratio(a, b, 0.95), unpaired_ratio(a, b, 0.90), margin);
}

std::size_t values_needed(std::span<const double> a, std::span<const double> b, double half_width) {
  constexpr std::size_t kMost = 1000;
  const LogMean before = log_mean(a), after = log_mean(b);
  const double variance = before.variance * before.count + after.variance * after.count;
  for (std::size_t count = 2; count < kMost; ++count) {
    const auto each = static_cast<double>(count);
    const double t = student_t_quantile(0.975, 2 * (each - 1));
    if (t * std::sqrt(variance / each) <= std::log1p(half_width)) return count;
  }
  return kMost;
}

}  // namespace penstock::statistics
