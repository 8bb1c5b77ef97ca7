// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/series.h"

#include <algorithm>
#include <cmath>

#include "bench/statistics/distributions.h"
#include "dataflow/error.h"
#include "dataflow/random.h"

namespace penstock::statistics {
namespace {

/// With fewer batches or blocks, their spread is poorly known.
constexpr std::size_t kLeastBatches = 6;

/// Means of consecutive batches of `size`. An incomplete batch is left out at the beginning.
std::vector<double> batch_means(std::span<const double> series, std::size_t size) {
  std::vector<double> means;
  for (std::size_t at = series.size() % size; at < series.size(); at += size) {
    means.push_back(mean(series.subspan(at, size)));
  }
  return means;
}

/// The values must be sorted.
double sorted_quantile(std::span<const double> sorted, double share) {
  const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// MSER: the truncation of `values` that minimises the sum of squares over the square of the
/// remaining count. It removes at most half of the values and keeps at least five. It runs from the
/// end, with Welford's update.
std::size_t least_error_truncation(std::span<const double> values) {
  constexpr std::size_t kLeastLeft = 5;
  if (values.size() <= kLeastLeft) return 0;
  const std::size_t most = std::min(values.size() / 2, values.size() - kLeastLeft);
  std::size_t best = 0;
  double least = kInfinity, average = 0, squares = 0, count = 0;
  for (std::size_t at = values.size(); at-- > 0;) {
    ++count;
    const double off = values[at] - average;
    average += off / count;
    squares += off * (values[at] - average);
    const double error = squares / (count * count);
    if (at <= most && error <= least) {
      least = error;
      best = at;
    }
  }
  return best;
}

/// The share of draws beyond a bound of the percentile interval. With few blocks the interval is
/// then as wide as Student's t would make it (Hesterberg 2015, "expanded percentile interval").
double expanded_tail(double tail, std::size_t blocks) {
  const auto count = static_cast<double>(blocks);
  return student_t_cdf(student_t_quantile(tail, count - 1) * std::sqrt(count / (count - 1)),
                       kInfinity);
}

struct Slope {
  double per_value = 0;
  bool certain = false;  ///< its 95 % interval excludes 0
};
/// Theil's slope with Sen's interval (1968), which assumes independent values.
Slope theil_sen(std::span<const double> values) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i + 1; j < values.size(); ++j) {
      slopes.push_back((values[j] - values[i]) / static_cast<double>(j - i));
    }
  }
  if (slopes.empty()) return {};
  std::sort(slopes.begin(), slopes.end());
  const auto count = static_cast<double>(values.size());
  const auto pairs = static_cast<double>(slopes.size());
  const double reach = 1.959964 * std::sqrt(count * (count - 1) * (2 * count + 5) / 18);
  const double lower = std::floor((pairs - reach) / 2);
  Slope slope{.per_value = sorted_quantile(slopes, 0.5)};
  if (lower < 1) return slope;  // too few to tell
  const auto rank = static_cast<std::size_t>(lower) - 1;
  slope.certain = slopes[rank] > 0 || slopes[slopes.size() - 1 - rank] < 0;
  return slope;
}

/// The batch size at which batches are almost independent of each other.
std::size_t independent_batch(double tau, std::size_t values) {
  constexpr double kTimes = 3;
  const std::size_t most = std::max<std::size_t>(1, values / kLeastBatches);
  return static_cast<std::size_t>(std::min(std::ceil(kTimes * tau), static_cast<double>(most)));
}

void find_drift(std::span<const double> rest, WarmUp& warm_up) {
  constexpr std::size_t kMostValues = 120;  // pairs grow with the square
  constexpr double kDriftPercent = 1;
  const double middle = quantile(rest, 0.5);
  if (rest.size() < 2 || middle == 0) return;
  const std::size_t thinned = (rest.size() + kMostValues - 1) / kMostValues;
  const std::vector<double> values = batch_means(rest, thinned);
  // Drift would look like autocorrelation, so remove it: batches are as long as the noise requires.
  const double rough = theil_sen(values).per_value;
  std::vector<double> residuals = values;
  for (std::size_t i = 0; i < values.size(); ++i) residuals[i] -= rough * static_cast<double>(i);
  const std::size_t batch = independent_batch(autocorrelation_time(residuals), values.size());
  const Slope slope = theil_sen(batch_means(values, batch));
  const double per_step = slope.per_value / static_cast<double>(thinned * batch);
  warm_up.drift_percent = 100 * per_step * static_cast<double>(rest.size()) / middle;
  warm_up.drifting = slope.certain && std::abs(warm_up.drift_percent) > kDriftPercent;
}

}  // namespace

void check_finite(std::span<const double> values) {
  PENSTOCK_ASSERT(
      std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); }));
}

double squares_about_mean(std::span<const double> values) {
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return squares;
}

double mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (const double value : values) sum += value - values.front();
  return values.front() + sum / static_cast<double>(values.size());
}

WarmUp find_warm_up(std::span<const double> series, std::size_t floor) {
  check_finite(series);
  constexpr std::size_t kBatch = 5;
  std::vector<double> batches;
  for (std::size_t at = 0; at + kBatch <= series.size(); at += kBatch) {
    batches.push_back(mean(series.subspan(at, kBatch)));
  }
  WarmUp warm_up;
  warm_up.steps =
      std::min(series.size(), std::max(floor, kBatch * least_error_truncation(batches)));
  find_drift(series.subspan(warm_up.steps), warm_up);
  return warm_up;
}

double autocorrelation_time(std::span<const double> series) {
  check_finite(series);
  if (series.size() < 4) return 1;
  const double average = mean(series);
  const auto covariance = [&](std::size_t lag) {
    double sum = 0;
    for (std::size_t i = lag; i < series.size(); ++i) {
      sum += (series[i] - average) * (series[i - lag] - average);
    }
    return sum;
  };
  const double variance = covariance(0);
  if (!(variance > 0)) return 1;
  double sum = 0;
  for (std::size_t lag = 0; lag + 1 < series.size() / 2; lag += 2) {
    const double pair = covariance(lag) + covariance(lag + 1);
    if (pair <= 0) break;
    sum += pair;
  }
  return std::max(1.0, 2 * sum / variance - 1);
}

Estimate mean_of_series(std::span<const double> series, double confidence) {
  PENSTOCK_ASSERT(confidence > 0 && confidence < 1);
  check_finite(series);
  if (series.size() < 2) {
    return {series.empty() ? 0 : series.front(), -kInfinity, kInfinity, series.size()};
  }
  const double tau = autocorrelation_time(series);
  const auto count = static_cast<double>(series.size());
  const std::vector<double> batches = batch_means(series, independent_batch(tau, series.size()));
  const auto batch_count = static_cast<double>(batches.size());
  // The sample variance of an autocorrelated series is low by a factor of 1 - tau / count.
  const double by_batches = squares_about_mean(batches) / (batch_count - 1) / batch_count;
  const double by_tau = squares_about_mean(series) / count * tau / std::max(1.0, count - tau);
  const double reach = std::sqrt(std::max(by_batches, by_tau)) *
                       student_t_quantile((1 + confidence) / 2, batch_count - 1);
  const double value = mean(series);
  return {value, value - reach, value + reach,
          std::max<std::size_t>(1, static_cast<std::size_t>(count / tau))};
}

Estimate bootstrap_series(std::span<const double> series, Statistic statistic, std::size_t block,
                          std::uint64_t seed, std::size_t resamples, double confidence) {
  PENSTOCK_ASSERT(confidence > 0 && confidence < 1 && resamples > 0);
  check_finite(series);
  if (series.size() < kLeastBatches) {
    return {series.empty() ? 0 : statistic(series), -kInfinity, kInfinity, series.size()};
  }
  const std::size_t count = series.size();
  block = std::clamp<std::size_t>(block, 1, std::max<std::size_t>(1, count / kLeastBatches));
  std::vector<double> draws(resamples), resample(count);
  for (std::size_t draw = 0; draw < resamples; ++draw) {
    Random random(seed, 0, draw);
    for (std::size_t at = 0; at < count; at += block) {
      const std::size_t from = random.below(count);
      for (std::size_t i = at; i < std::min(at + block, count); ++i) {
        resample[i] = series[(from + i - at) % count];
      }
    }
    draws[draw] = statistic(resample);
  }
  check_finite(draws);
  std::sort(draws.begin(), draws.end());
  const double tail = expanded_tail((1 - confidence) / 2, count / block);
  return {statistic(series), sorted_quantile(draws, tail), sorted_quantile(draws, 1 - tail),
          count / block};
}

double quantile(std::span<const double> values, double share) {
  check_finite(values);
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted_quantile(sorted, share);
}

}  // namespace penstock::statistics
