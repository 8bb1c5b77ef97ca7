// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics/scaling_law.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "bench/statistics/distributions.h"
#include "dataflow/error.h"
#include "dataflow/random.h"

namespace penstock::statistics {
namespace {

/// Thread-seconds per image, n / X(n), are linear in 1 / lambda, sigma / lambda, kappa / lambda.
using Three = std::array<double, 3>;
Three terms(double threads) { return {1, threads - 1, threads * (threads - 1)}; }

struct Sample {
  double threads = 0, seconds = 0, blocks = 0;  ///< thread-seconds per image: mean over blocks
};

/// Averages `pick(point, block)` over each point's blocks; ignores rates that are not above 0.
template <typename Pick>
std::vector<Sample> samples_of(std::span<const ScalingPoint> points, Pick pick) {
  std::vector<Sample> samples;
  for (std::size_t p = 0; p < points.size(); ++p) {
    Sample sample{.threads = points[p].threads};
    for (std::size_t k = 0; k < points[p].img_per_s.size(); ++k) {
      const double rate = points[p].img_per_s[pick(p, k)];
      const double seconds = sample.threads / rate;
      if (!(rate > 0) || !(seconds > 0) || std::isinf(seconds)) continue;
      sample.seconds += seconds;
      ++sample.blocks;
    }
    if (sample.blocks == 0) continue;
    sample.seconds /= sample.blocks;
    samples.push_back(sample);
  }
  return samples;
}

/// Solves three equations by elimination with partial pivoting; none if singular.
std::optional<Three> solve(std::array<Three, 3> matrix, Three right) {
  for (std::size_t k = 0; k < 3; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < 3; ++i) {
      if (std::abs(matrix[i][k]) > std::abs(matrix[pivot][k])) pivot = i;
    }
    if (!(std::abs(matrix[pivot][k]) > 1e-12)) return std::nullopt;
    std::swap(matrix[k], matrix[pivot]);
    std::swap(right[k], right[pivot]);
    for (std::size_t i = 0; i < 3; ++i) {
      if (i == k) continue;
      const double factor = matrix[i][k] / matrix[k][k];
      for (std::size_t j = k; j < 3; ++j) matrix[i][j] -= factor * matrix[k][j];
      right[i] -= factor * right[k];
    }
  }
  return Three{right[0] / matrix[0][0], right[1] / matrix[1][1], right[2] / matrix[2][2]};
}

/// Least squares of (seconds predicted / measured - 1) in three coefficients, some of them fixed at
/// a bound. Columns are scaled to length 1.
class RelativeSquares {
 public:
  explicit RelativeSquares(std::span<const Sample> samples) : samples_(samples) {
    for (const Sample& sample : samples) {
      const Three term = terms(sample.threads);
      for (std::size_t i = 0; i < 3; ++i) {
        scale_[i] += sample.blocks * std::pow(term[i] / sample.seconds, 2);
      }
    }
    for (double& scale : scale_) scale = scale > 0 ? std::sqrt(scale) : 1;
    for (const Sample& sample : samples) {
      const Three term = terms(sample.threads);
      for (std::size_t i = 0; i < 3; ++i) {
        const double row = sample.blocks * term[i] / sample.seconds / scale_[i];
        right_[i] += row;
        for (std::size_t j = 0; j < 3; ++j) {
          gram_[i][j] += row * term[j] / sample.seconds / scale_[j];
        }
      }
    }
  }

  /// Coefficients whose bit is not in `free` equal their bound.
  std::optional<Three> minimum(unsigned free, const Three& bounds) const {
    std::array<Three, 3> matrix = gram_;
    Three right = right_;
    for (std::size_t i = 0; i < 3; ++i) {
      if (free & (1U << i)) continue;
      matrix[i] = {};
      matrix[i][i] = 1;
      right[i] = bounds[i] * scale_[i];
    }
    std::optional<Three> found = solve(matrix, right);
    for (std::size_t i = 0; found && i < 3; ++i) {
      (*found)[i] = free & (1U << i) ? (*found)[i] / scale_[i] : bounds[i];
    }
    return found;
  }

  double error(const Three& coefficients) const {
    double sum = 0;
    for (const Sample& sample : samples_) {
      const Three term = terms(sample.threads);
      double seconds = 0;
      for (std::size_t i = 0; i < 3; ++i) seconds += coefficients[i] * term[i];
      sum += sample.blocks * std::pow(seconds / sample.seconds - 1, 2);
    }
    return sum;
  }

 private:
  std::span<const Sample> samples_;
  std::array<Three, 3> gram_{};
  Three right_{}, scale_{};
};

/// The different thread counts of samples or points.
template <typename Each>
std::set<double> thread_counts(std::span<const Each> all) {
  std::set<double> threads;
  for (const Each& each : all) threads.insert(each.threads);
  return threads;
}

/// A convex problem in three unknowns with one bound each. The solution is the best least-squares
/// fit, over all choices of unknowns fixed at their bounds, that meets the other bounds. Fewer free
/// unknowns win a tie.
ScalingLaw fit(std::span<const Sample> samples) {
  PENSTOCK_ASSERT(!samples.empty());
  const RelativeSquares squares(samples);
  const std::size_t distinct = thread_counts(samples).size();
  double most = 0;
  for (const Sample& sample : samples) most = std::max(most, sample.threads / sample.seconds);
  const Three bounds{1 / most, 0, 0};
  Three best = bounds;
  double least = kInfinity;
  for (const unsigned free : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U}) {
    if ((free & 2U && distinct < 2) || (free & 4U && distinct < 3)) continue;
    const std::optional<Three> found = squares.minimum(free, bounds);
    if (!found || (*found)[0] < bounds[0] || (*found)[1] < 0 || (*found)[2] < 0) continue;
    const double error = squares.error(*found);
    constexpr double kRounding = 1e-24;
    if (error < least - kRounding) {
      least = error;
      best = *found;
    }
  }
  return {1 / best[0], best[1] / best[0], best[2] / best[0]};
}

/// Threads for a demand on the rising side of the law; infinite if none reaches it.
double threads_for(const ScalingLaw& law, double demand) {
  if (demand <= law.lambda) return demand / law.lambda;
  // demand kappa n^2 - b n + demand (1 - sigma) = 0
  const double b = law.lambda + demand * (law.kappa - law.sigma);
  const double c = demand * (1 - law.sigma);
  const double root = b * b - 4 * demand * law.kappa * c;
  if (b <= 0 || c <= 0 || root < 0) return kInfinity;
  return 2 * c / (b + std::sqrt(root));
}

double peak_rate(const ScalingLaw& law) {
  if (const auto threads = law.peak_threads()) return law.rate(*threads);
  return law.sigma > 0 ? law.lambda / law.sigma : kInfinity;
}

/// The law of all blocks, and the laws of resampled blocks. If every point has a value in every
/// round, whole rounds are drawn, because a disturbance of a round affects all its points.
/// Intervals use Student's t with the bootstrap's standard error: percentiles of this few blocks
/// would be too narrow (Hesterberg 2015).
class Resampled {
 public:
  Resampled(std::span<const ScalingPoint> points, std::uint64_t seed, std::size_t resamples)
      : law_(fit_scaling_law(points)) {
    PENSTOCK_ASSERT(resamples > 0);
    std::size_t most = 0;
    for (const ScalingPoint& point : points) {
      const std::size_t blocks = point.img_per_s.size();
      most = std::max(most, blocks);
      if (blocks > 0) blocks_ = blocks_ == 0 ? blocks : std::min(blocks_, blocks);
    }
    const bool alike = blocks_ == most;
    if (blocks_ < 2) return;
    const auto count = static_cast<double>(blocks_);
    stretch_ = student_t_quantile(0.975, count - 1) * std::sqrt(count / (count - 1));
    for (std::size_t draw = 0; draw < resamples; ++draw) {
      const std::vector<Sample> samples = samples_of(points, [&](std::size_t p, std::size_t k) {
        return Random(seed, draw, alike ? k : k + 1000003 * (p + 1))
            .below(points[p].img_per_s.size());
      });
      if (!samples.empty()) laws_.push_back(fit(samples));
    }
  }

  const ScalingLaw& law() const noexcept { return law_; }
  std::size_t blocks() const noexcept { return blocks_; }

  /// Half the width of the interval of the law's `figure`; infinite with one block.
  template <typename Figure>
  double reach(Figure figure) const {
    if (laws_.empty()) return kInfinity;
    const double middle = figure(law_);
    double squares = 0;
    for (const ScalingLaw& law : laws_) squares += std::pow(figure(law) - middle, 2);
    return stretch_ * std::sqrt(squares / static_cast<double>(laws_.size()));
  }

  /// Computed with logarithms.
  Estimate rate(double threads) const {
    const double value = law_.rate(threads);
    if (!(threads > 0)) return {0, 0, 0, blocks_};
    const double factor =
        std::exp(reach([&](const ScalingLaw& law) { return std::log(law.rate(threads)); }));
    return {value, value / factor, value * factor, blocks_};
  }

  /// Computed with the reciprocal, which is 0 if the rate always rises.
  Estimate peak() const {
    const auto reciprocal = [](const ScalingLaw& law) { return 1 / peak_rate(law); };
    const double middle = reciprocal(law_), half = reach(reciprocal);
    const double low = 1 / (middle + half);
    return {peak_rate(law_), low, middle > half ? 1 / (middle - half) : kInfinity, blocks_};
  }

 private:
  ScalingLaw law_;
  std::vector<ScalingLaw> laws_;
  std::size_t blocks_ = 0;
  double stretch_ = 0;
};

/// Where a bound of the law's band first reaches a demand. Infinite if that is beyond a hundred
/// times the `expected` number of threads.
double crossing(const Resampled& band, double Estimate::*bound, double demand, double expected) {
  const auto reaches = [&](double threads) { return band.rate(threads).*bound >= demand; };
  const double one = band.rate(1).*bound;
  if (one >= demand) return std::isinf(one) ? 0 : demand / one;
  constexpr double kStep = 1.1, kFar = 100;
  double below = 1, above = kStep;
  while (!reaches(above)) {
    if (above > kFar * std::max(1.0, expected)) return kInfinity;
    below = above;
    above *= kStep;
  }
  for (int halving = 0; halving < 30; ++halving) {
    const double middle = (below + above) / 2;
    (reaches(middle) ? above : below) = middle;
  }
  return above;
}

/// The highest rate per thread of any thread count, by the mean over its blocks.
double best_rate_of_a_thread(std::span<const ScalingPoint> points) {
  double best = 0;
  for (const ScalingPoint& point : points) {
    if (point.img_per_s.empty()) continue;
    const double sum = std::accumulate(point.img_per_s.begin(), point.img_per_s.end(), 0.0);
    best = std::max(best, sum / (static_cast<double>(point.img_per_s.size()) * point.threads));
  }
  return best;
}

}  // namespace

double ScalingLaw::rate(double threads) const {
  if (threads <= 1) return lambda * std::max(0.0, threads);
  return lambda * threads / (1 + sigma * (threads - 1) + kappa * threads * (threads - 1));
}

std::optional<double> ScalingLaw::peak_threads() const {
  if (sigma >= 1) return 1;
  if (kappa <= 0) return std::nullopt;
  const double below = std::max(1.0, std::floor(std::sqrt((1 - sigma) / kappa)));
  return rate(below + 1) > rate(below) ? below + 1 : below;
}

ScalingLaw fit_scaling_law(std::span<const ScalingPoint> points) {
  for (const ScalingPoint& point : points) PENSTOCK_ASSERT(point.threads >= 1);
  return fit(samples_of(points, [](std::size_t, std::size_t k) { return k; }));
}

ThreadsNeeded threads_needed(std::span<const ScalingPoint> points, double demand,
                             std::uint64_t seed, std::size_t resamples) {
  PENSTOCK_ASSERT(demand > 0 && std::isfinite(demand));
  const Resampled band(points, seed, resamples);
  ThreadsNeeded needed;
  const std::set<double> counts = thread_counts(points);
  needed.measured_to = *counts.rbegin();
  needed.thread_counts = counts.size();
  const bool enough_counts = needed.thread_counts >= kThreadCountsForLaw;
  constexpr double kRounding = 1e-9;
  const double threads = threads_for(band.law(), demand);
  const double whole = std::max(1.0, std::ceil(threads * (1 - kRounding)));
  needed.reachable = std::isfinite(threads) && whole <= std::numeric_limits<int>::max() &&
                     band.law().rate(whole) >= demand * (1 - kRounding);
  if (!needed.reachable) {
    needed.peak_img_per_s = band.peak();
    needed.known = enough_counts && needed.peak_img_per_s.high < demand;
    return needed;
  }
  needed.whole = static_cast<int>(whole);
  needed.threads = {threads, std::min(threads, crossing(band, &Estimate::high, demand, threads)),
                    std::max(threads, crossing(band, &Estimate::low, demand, threads)),
                    band.blocks()};
  needed.known =
      whole <= needed.measured_to || (enough_counts && std::isfinite(needed.threads.high));
  if (!needed.known && !enough_counts) {
    // The law's prediction is no lower bound: with one coefficient per point it follows the noise.
    // But no thread supplies more than one thread of the best count did.
    const double least = std::max(demand / best_rate_of_a_thread(points), needed.measured_to);
    needed.whole = static_cast<int>(std::min(std::ceil(least * (1 - kRounding)), whole));
  }
  return needed;
}

Estimate rate_at(std::span<const ScalingPoint> points, double threads, std::uint64_t seed,
                 std::size_t resamples) {
  return Resampled(points, seed, resamples).rate(threads);
}

}  // namespace penstock::statistics
