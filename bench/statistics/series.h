// SPDX-License-Identifier: Apache-2.0
// Step times as a time series: where its warm-up ends, how much of it is news, and the interval of
// its mean. Step times are autocorrelated (queue states, clocks, page cache), so intervals that
// take them for independent are too narrow. Pure functions; times in any unit. Values have to be
// finite: anything else is a broken invariant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/statistics/estimate.h"

namespace penstock {

/// Steps to leave out at the beginning of a series.
struct WarmUp {
  std::size_t steps = 0;
  /// The rest still drifts: its Theil-Sen slope times its length exceeds 1 % of its median, and the
  /// slope's own 95 % interval (Sen 1968), over means of batches long enough to be independent,
  /// excludes 0.
  bool drifting = false;
  double drift_percent = 0;  ///< that product, in per cent of the median
};
/// MSER-5 (White 1997; Franklin and White 2008): the truncation that minimises the standard error
/// of the mean of batches of five, at most half of the series and leaving five batches; but at
/// least `floor` steps, or the whole series if it is no longer than that.
WarmUp find_warm_up(std::span<const double> series, std::size_t floor);

/// Integrated autocorrelation time by Geyer's initial positive sequence (1992): the variance of the
/// mean is tau times what it would be of independent values. At least 1, also where neighbours make
/// up for each other; 1 for fewer than 4 values and for constant ones.
double autocorrelation_time(std::span<const double> series);

/// Mean of the series with an interval from non-overlapping batch means: batches of about
/// 3 * autocorrelation_time values, at least 6 batches where the series allows, Student's t; never
/// narrower than the autocorrelation time says by itself. `samples` is the effective number,
/// count / tau: below some 15 the interval tends to be too narrow, whatever is done. An empty or
/// single-valued series gives an interval that is infinitely wide, and never a confident one.
Estimate mean_of_series(std::span<const double> series, double confidence = 0.95);

/// Circular block bootstrap (Politis and Romano 1992) of any statistic of a series, in blocks of
/// `block` values; the percentile interval of `resamples` draws, expanded as Student's t is for as
/// many blocks (Hesterberg 2015). 3 * autocorrelation_time makes a good block; it is at most a
/// sixth of the series, since fewer would resemble each other too much. `samples` counts blocks.
/// With fewer than six values the interval is infinitely wide; the statistic is never asked of an
/// empty series, and has to be finite. Far quantiles of short series are covered less often than
/// stated.
using Statistic = double (*)(std::span<const double>);
Estimate bootstrap_series(std::span<const double> series, Statistic statistic, std::size_t block,
                          std::uint64_t seed, std::size_t resamples = 2000,
                          double confidence = 0.95);

/// The `share` quantile (0 to 1) by linear interpolation between order statistics (Hyndman and Fan
/// 1996, definition 7: NumPy's and R's default); 0 for none.
double quantile(std::span<const double> values, double share);

/// Longest run of consecutive values above `limit`: how long stalls last.
std::size_t longest_run_above(std::span<const double> series, double limit);

}  // namespace penstock
