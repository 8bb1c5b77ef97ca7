// SPDX-License-Identifier: Apache-2.0
// Treats step times as a time series: the end of warm-up, the autocorrelation, and the interval of
// the mean. Step times are autocorrelated (queue states, clocks, page cache), so intervals that
// assume independence are too narrow. Pure functions; times in any unit. Values must be finite;
// other values break an invariant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/statistics/estimate.h"

namespace penstock::statistics {

/// Steps to leave out at the beginning of a series.
struct WarmUp {
  std::size_t steps = 0;
  /// The remaining series still drifts: its Theil-Sen slope times its length exceeds 1 % of its
  /// median, and the slope's 95 % interval (Sen 1968), over means of batches long enough to be
  /// independent, excludes 0.
  bool drifting = false;
  double drift_percent = 0;  ///< slope times length, in per cent of the median
};
/// 0 for no values. Sums differences from the first value, so it is exact for a constant series.
double mean(std::span<const double> values);
/// The sum of squared differences from the mean.
double squares_about_mean(std::span<const double> values);
/// Breaks an invariant if a value is infinite or no number.
void check_finite(std::span<const double> values);

/// MSER-5 (White 1997; Franklin and White 2008): the truncation that minimises the standard error
/// of the mean of batches of five. It removes at most half of the series and keeps five batches. It
/// removes at least `floor` steps, or the whole series if that is shorter.
WarmUp find_warm_up(std::span<const double> series, std::size_t floor);

/// Integrated autocorrelation time tau by Geyer's initial positive sequence (1992): the variance of
/// the mean is tau times that of independent values. It is at least 1, even if neighbours
/// compensate each other. It is 1 for fewer than 4 values and for constant values.
double autocorrelation_time(std::span<const double> series);

/// Mean of the series with an interval from non-overlapping batch means. Batches have about
/// 3 * autocorrelation_time values; there are at least 6 batches if the series is long enough. The
/// interval uses Student's t, and is never narrower than the autocorrelation time implies.
/// `samples` is the effective number, count / tau; below about 15 the interval tends to be too
/// narrow. For fewer than two values the interval is infinite.
Estimate mean_of_series(std::span<const double> series, double confidence = 0.95);

/// Circular block bootstrap (Politis and Romano 1992) of any statistic of a series, in blocks of
/// `block` values. Returns the percentile interval of `resamples` draws, expanded like Student's t
/// for this number of blocks (Hesterberg 2015). 3 * autocorrelation_time is a good block length.
/// The length is limited to a sixth of the series, because fewer blocks would be too similar.
/// `samples` counts blocks. With fewer than six values the interval is infinite. The statistic
/// never receives an empty series and must return a finite value. For extreme quantiles of short
/// series the true coverage is lower than stated.
using Statistic = double (*)(std::span<const double>);
Estimate bootstrap_series(std::span<const double> series, Statistic statistic, std::size_t block,
                          std::uint64_t seed, std::size_t resamples = 2000,
                          double confidence = 0.95);

/// The `share` quantile (0 to 1) by linear interpolation between order statistics (Hyndman and Fan
/// 1996, definition 7: the default of NumPy and R); 0 without values.
double quantile(std::span<const double> values, double share);

}  // namespace penstock::statistics
