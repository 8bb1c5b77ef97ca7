// SPDX-License-Identifier: Apache-2.0
// The universal scalability law (Gunther 1993) through measured rates:
//   X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1))
// lambda: rate of one thread; sigma: the share that is serial; kappa: the cost of every pair of
// threads' coherence. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/statistics/estimate.h"

namespace penstock {

/// What `threads` threads supplied, one value for each block. Blocks of all points are alike: value
/// k of every point was measured in round k where all have as many.
struct ScalingPoint {
  double threads = 1;
  std::vector<double> img_per_s;
};

struct ScalingLaw {
  double lambda = 0, sigma = 0, kappa = 0;
  double rate(double threads) const;
  /// The number of threads with the highest rate; none: rates rise for ever.
  std::optional<double> peak_threads() const;
};

/// Least squares of relative errors, sigma and kappa at least 0. With two points kappa is 0, with
/// one sigma as well. At least one point with a rate above 0.
ScalingLaw fit_scaling_law(std::span<const ScalingPoint> points);

/// The least whole number of threads whose rate reaches a demand.
struct ThreadsNeeded {
  bool reachable = false;
  Estimate threads;  ///< where it is: not rounded up; bootstrap over blocks. high may be infinite
  int whole = 0;     ///< threads.value rounded up
  Estimate peak_img_per_s;  ///< where it is not: the most that any number of threads supplies
  double measured_to = 0;   ///< most threads measured: beyond, this is an extrapolation
};
/// `demand` in img/s, already with the margin that the caller wants. `seed`: of the bootstrap.
ThreadsNeeded threads_needed(std::span<const ScalingPoint> points, double demand,
                             std::uint64_t seed, std::size_t resamples = 1000);

/// The law's rate at n, with its bootstrap interval: the band of a figure.
Estimate rate_at(std::span<const ScalingPoint> points, double threads, std::uint64_t seed,
                 std::size_t resamples = 1000);

}  // namespace penstock
