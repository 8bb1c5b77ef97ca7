// SPDX-License-Identifier: Apache-2.0
// Fits the universal scalability law (Gunther 1993) to measured rates:
//   X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1))
// lambda: rate of one thread; sigma: the serial share; kappa: the coherence cost of every pair of
// threads. n may be below 1: a share of one thread supplies the same share of lambda. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bench/statistics/estimate.h"

namespace penstock::statistics {

/// The rates of `threads` threads (at least 1), one value per block. If all points have the same
/// number of blocks, value k of every point was measured in round k. Values that are not above 0
/// are ignored.
struct ScalingPoint {
  double threads = 1;
  std::vector<double> img_per_s;
};

struct ScalingLaw {
  double lambda = 0, sigma = 0, kappa = 0;
  double rate(double threads) const;
  /// The whole number of threads with the highest rate; none if the rate always rises.
  std::optional<double> peak_threads() const;
};

/// Minimises the squares of the relative errors of thread-seconds per image, n / X(n). Each point
/// contributes the mean over its blocks. These terms are linear in 1 / lambda, sigma / lambda and
/// kappa / lambda, so there is one solution. sigma and kappa are at least 0, and lambda is at most
/// the highest rate of a point. With two numbers of threads kappa is 0; with one, sigma is 0 too.
/// sigma above 1 means that the rate falls with the second thread. Needs at least one rate above 0.
ScalingLaw fit_scaling_law(std::span<const ScalingPoint> points);

/// With fewer thread counts, the law has at least as many coefficients as points and predicts
/// nothing beyond them.
inline constexpr std::size_t kThreadCountsForLaw = 4;

/// The least whole number of threads whose rate reaches a demand.
struct ThreadsNeeded {
  bool reachable = false;
  /// If reachable: the number of threads, not rounded up. Its interval is where the demand crosses
  /// the band of rate_at; high may be infinite. Otherwise 0.
  Estimate threads;
  int whole = 0;                  ///< threads.value rounded up
  Estimate peak_img_per_s;        ///< if not reachable: the highest rate of any number of threads
  double measured_to = 0;         ///< most threads measured; larger numbers are an extrapolation
  std::size_t thread_counts = 0;  ///< number of different thread counts measured
  /// False: the data cannot tell. This happens beyond measured_to with fewer than
  /// kThreadCountsForLaw thread counts, or if an interval leaves open whether the demand is
  /// reached. Then `whole` is a lower bound (by the best rate of one thread, if there are too few
  /// counts), and `peak_img_per_s` is not an upper bound.
  bool known = true;
};
/// `demand`: img/s, including the caller's margin. `seed`: of the bootstrap.
ThreadsNeeded threads_needed(std::span<const ScalingPoint> points, double demand,
                             std::uint64_t seed, std::size_t resamples = 1000);

/// The law's rate at `threads`, with its interval: the band in a figure. It uses Student's t over
/// blocks, with a standard error from resampled blocks. The interval is infinite with fewer than
/// two blocks. It reflects how much rates vary, not whether the law holds outside the measured
/// range.
Estimate rate_at(std::span<const ScalingPoint> points, double threads, std::uint64_t seed,
                 std::size_t resamples = 1000);

}  // namespace penstock::statistics
