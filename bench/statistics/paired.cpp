// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/paired.h"

#include <cmath>
#include <vector>

#include "bench/statistics/distributions.h"
#include "bench/statistics/series.h"
#include "dataflow/error.h"

namespace penstock::statistics {
namespace {

struct Moments {
  double mean = 0, deviation = 0;  ///< of a sample: n - 1
};
Moments moments_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  return {mean(values), count < 2 ? 0 : std::sqrt(squares_about_mean(values) / (count - 1))};
}

/// Half the width of the interval of a mean of `count` values.
double reach(double deviation, std::size_t count, double confidence) {
  if (count < 2) return kInfinity;
  if (deviation == 0) return 0;
  const auto n = static_cast<double>(count);
  return deviation / std::sqrt(n) * student_t_quantile((1 + confidence) / 2, n - 1);
}

std::vector<double> log_ratios(std::span<const Pair> pairs) {
  std::vector<double> logs;
  for (const Pair& pair : pairs) {
    PENSTOCK_ASSERT(pair.a > 0 && pair.b > 0 && std::isfinite(pair.a) && std::isfinite(pair.b));
    logs.push_back(std::log(pair.b) - std::log(pair.a));
  }
  return logs;
}

}  // namespace

Estimate paired_ratio(std::span<const Pair> pairs, double confidence) {
  PENSTOCK_ASSERT(confidence > 0 && confidence < 1);
  const Moments logs = moments_of(log_ratios(pairs));
  const double half = reach(logs.deviation, pairs.size(), confidence);
  return {std::exp(logs.mean), std::exp(logs.mean - half), std::exp(logs.mean + half),
          pairs.size()};
}

Estimate mean_of_blocks(std::span<const double> values, double confidence) {
  PENSTOCK_ASSERT(confidence > 0 && confidence < 1);
  check_finite(values);
  const Moments moments = moments_of(values);
  const double half = reach(moments.deviation, values.size(), confidence);
  return {moments.mean, moments.mean - half, moments.mean + half, values.size()};
}

Verdict judge(std::span<const Pair> pairs, double margin, double confidence) {
  PENSTOCK_ASSERT(margin >= 0 && std::isfinite(margin));
  constexpr std::size_t kLeastPairs = 3;
  if (pairs.size() < kLeastPairs) return Verdict::undecided;
  return verdict_of(paired_ratio(pairs, confidence), paired_ratio(pairs, 2 * confidence - 1),
                    margin);
}

Verdict verdict_of(const Estimate& difference, const Estimate& equivalence, double margin) {
  if (difference.low > 1 && difference.value > 1 + margin) return Verdict::slower;
  if (difference.high < 1 && difference.value < 1 / (1 + margin)) return Verdict::faster;
  const bool within = equivalence.low >= 1 / (1 + margin) && equivalence.high <= 1 + margin;
  return within ? Verdict::equal : Verdict::undecided;
}

std::size_t more_pairs(std::span<const Pair> pairs, double half_width) {
  PENSTOCK_ASSERT(pairs.size() >= 2 && half_width > 0);
  const double deviation = moments_of(log_ratios(pairs)).deviation;
  const double target = std::log1p(half_width);
  const auto suffices = [&](std::size_t count) { return reach(deviation, count, 0.95) <= target; };
  if (suffices(pairs.size())) return 0;
  std::size_t too_few = pairs.size(), enough = 2 * too_few;
  while (enough < kMostPairs && !suffices(enough)) {
    too_few = enough;
    enough *= 2;
  }
  if (enough >= kMostPairs) return kMostPairs;
  while (enough - too_few > 1) {
    const std::size_t middle = too_few + (enough - too_few) / 2;
    (suffices(middle) ? enough : too_few) = middle;
  }
  return enough - pairs.size();
}

double detectable_effect(std::span<const Pair> pairs, std::size_t planned) {
  PENSTOCK_ASSERT(pairs.size() >= 3 && planned >= 3);
  constexpr double kPower = 0.8;
  const auto count = static_cast<double>(planned);
  const double errors =
      student_t_quantile(0.975, count - 1) + student_t_quantile(kPower, count - 1);
  return std::expm1(errors * moments_of(log_ratios(pairs)).deviation / std::sqrt(count));
}

}  // namespace penstock::statistics
