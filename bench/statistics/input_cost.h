// SPDX-License-Identifier: Apache-2.0
// Estimates what feeding costs, from rounds in which ceiling and feeder ran side by side. Every
// report prints this estimate. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/statistics/paired.h"

namespace penstock::statistics {

/// With fewer rounds there is no useful interval; reports state the spread of the rounds.
inline constexpr std::size_t kRoundsForInterval = 5;
/// With fewer rounds there is no verdict, unless each of them lost more than kBeyondNoisePercent:
/// runs beside each other on one machine do not differ by a factor of two without a reason.
inline constexpr std::size_t kRoundsForVerdict = 3;
inline constexpr double kBeyondNoisePercent = 50;

struct CostTargets {
  double margin = 0.01;      ///< smaller differences are irrelevant
  double half_width = 0.01;  ///< of the cost ratio's interval
  /// The largest share of a window's batches that may have been prepared before it, 0 to 1. The
  /// upper cost bound includes it. If it is above 0, the verdict is never that the feeder costs
  /// nothing.
  double most_hidden = 0;
};

/// Summarises figures of rounds, all by the same method, so that a report's figures agree. The
/// method is the mean with Student's t, or the spread. The spread is used below kRoundsForInterval
/// rounds. It is also used if every round lost something but Student's interval of the cost reaches
/// below 0, because then Student's assumptions do not hold.
class RoundSummary {
 public:
  /// Step times of each round: a of the ceiling, b with the feeder.
  explicit RoundSummary(std::span<const Pair> step_ms);

  bool is_spread() const noexcept { return is_spread_; }
  /// Summarises one value per round. The value of a spread is from the round with the median cost
  /// (the mean of the middle two for an even number), so that parts of a step add up.
  Estimate of(std::span<const double> values) const;

 private:
  std::vector<std::size_t> middle_;
  bool is_spread_ = false;
};

/// Summarises rounds of one condition: below kRoundsForInterval by the median and the spread.
Estimate summarise_rounds(std::span<const double> values);

struct CostEstimate {
  std::vector<double> rounds;    ///< per cent in each round, as measured; negative: the feeder was
                                 ///< faster
  Estimate percent;              ///< of the ceiling's rate; a cost lies between 0 and 100
  Estimate ms_per_step;          ///< at least 0
  Estimate img_per_s_lost;       ///< at least 0
  double unbounded_percent = 0;  ///< percent.value before it was kept between 0 and 100
  double margin = 0.01;          ///< margin used for the verdict
  bool same_rounds = true;       ///< false: no round had both, so drift does not cancel
  Verdict verdict = Verdict::undecided;
  std::size_t more_rounds = 0;  ///< if undecided: how many more rounds would decide; 0: not known
};

/// `step_ms`: at least one pair, as in RoundSummary. `images`: per step. `same_rounds`: both sides
/// of a pair ran in one round. Otherwise drift does not cancel, and there is no verdict.
CostEstimate estimate_cost(std::span<const Pair> step_ms, double images, const CostTargets& targets,
                           bool same_rounds = true);

}  // namespace penstock::statistics
