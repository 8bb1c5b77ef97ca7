// SPDX-License-Identifier: Apache-2.0
// The universal scalability law (Gunther 1993) through measured rates:
//   X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1))
// lambda: rate of one thread; sigma: the share that is serial; kappa: the cost of every pair of
// threads' coherence. A share of one thread's time supplies that share of lambda. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/statistics/estimate.h"

namespace penstock {

/// What `threads` threads (at least 1) supplied, one value for each block. Blocks of all points are
/// alike: value k of every point was measured in round k where all have as many. A value that is
/// not above 0 is left out: nothing was supplied.
struct ScalingPoint {
  double threads = 1;
  std::vector<double> img_per_s;
};

struct ScalingLaw {
  double lambda = 0, sigma = 0, kappa = 0;
  double rate(double threads) const;
  /// The whole number of threads with the highest rate; none: rates rise for ever.
  std::optional<double> peak_threads() const;
};

/// Least squares of the relative errors of thread-seconds per image, n / X(n), of which every point
/// contributes the mean over its blocks: these are linear in 1 / lambda, sigma / lambda and
/// kappa / lambda, so that there is one solution. sigma and kappa are at least 0, and lambda is at
/// most the highest rate of a point. With two numbers of threads kappa is 0, with one sigma as
/// well; sigma above 1 is a rate that falls with the second thread. At least one rate above 0.
ScalingLaw fit_scaling_law(std::span<const ScalingPoint> points);

/// With fewer the law has as many coefficients as points, or more: it says nothing of what lies
/// beyond them.
inline constexpr std::size_t kThreadCountsForLaw = 4;

/// The least whole number of threads whose rate reaches a demand.
struct ThreadsNeeded {
  bool reachable = false;
  /// Where it is: not rounded up. The interval is where the demand crosses the band of rate_at;
  /// high may be infinite. 0 where it is not.
  Estimate threads;
  int whole = 0;                  ///< threads.value rounded up
  Estimate peak_img_per_s;        ///< where it is not: the most that any number of threads supplies
  double measured_to = 0;         ///< most threads measured: beyond, this is an extrapolation
  std::size_t thread_counts = 0;  ///< that were measured, each once
  /// False: the data cannot tell. Beyond measured_to with fewer than kThreadCountsForLaw thread
  /// counts, or if an interval leaves open whether the demand is reached: then `whole` is a lower
  /// bound (by the best rate of one thread, if there are too few counts), and `peak_img_per_s` no
  /// upper one.
  bool known = true;
};
/// `demand` in img/s, already with the margin that the caller wants. `seed`: of the bootstrap.
ThreadsNeeded threads_needed(std::span<const ScalingPoint> points, double demand,
                             std::uint64_t seed, std::size_t resamples = 1000);

/// The law's rate at n, with its interval: the band of a figure. Student's t over blocks, with a
/// standard error from resampled blocks; infinitely wide with fewer than two blocks. It knows how
/// much rates vary, not whether the law holds where nothing was measured.
Estimate rate_at(std::span<const ScalingPoint> points, double threads, std::uint64_t seed,
                 std::size_t resamples = 1000);

}  // namespace penstock
