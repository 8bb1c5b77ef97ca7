// SPDX-License-Identifier: Apache-2.0
// What feeding costs, from rounds in which the ceiling and the feeder ran side by side: the one
// estimate that every report prints. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/statistics/paired.h"

namespace penstock {

/// Fewer rounds have no interval worth the name: reports state the spread of the rounds.
inline constexpr std::size_t kRoundsForInterval = 5;
/// Fewer rounds have no verdict.
inline constexpr std::size_t kRoundsForVerdict = 3;

struct CostTargets {
  double margin = 0.01;      ///< smaller differences do not matter
  double half_width = 0.01;  ///< of the cost ratio's interval
  /// The largest share of a window's batches that may have been made before it, 0 to 1. The highest
  /// cost includes it, and a feeder of which it is known is never said to cost nothing.
  double most_hidden = 0;
};

/// How figures of rounds are summed up, so that all figures of a report agree: by their mean with
/// Student's t; or by their spread, where there are fewer than kRoundsForInterval rounds, and where
/// every round lost something but Student's interval of the cost reaches below 0: its assumptions
/// do not hold then.
class RoundSummary {
 public:
  /// Step times of each round: a of the ceiling, b with the feeder.
  explicit RoundSummary(std::span<const Pair> step_ms);

  bool is_spread() const noexcept { return is_spread_; }
  /// Of one value for each round. The value of a spread is that of the round whose cost is the
  /// middle one (of two, their mean), so that parts of a step add up.
  Estimate of(std::span<const double> values) const;

 private:
  std::vector<std::size_t> middle_;
  bool is_spread_ = false;
};

/// The same for rounds of one condition: below kRoundsForInterval the median and the spread.
Estimate summarise_rounds(std::span<const double> values);

struct CostEstimate {
  std::vector<double> rounds;    ///< per cent of each, as measured: below 0 the feeder was faster
  Estimate percent;              ///< of the ceiling's rate; a cost lies between 0 and 100
  Estimate ms_per_step;          ///< at least 0
  Estimate img_per_s_lost;       ///< at least 0
  double unbounded_percent = 0;  ///< percent.value before it was kept between 0 and 100
  double margin = 0.01;          ///< that the verdict was made with
  bool same_rounds = true;       ///< false: no round had both, so that nothing cancels
  Verdict verdict = Verdict::undecided;
  std::size_t more_rounds = 0;  ///< if undecided: how many more would decide; 0: not known
};

/// Pairs as of RoundSummary, at least one; `images` of a step. `same_rounds`: both sides of a pair
/// ran in one round; else nothing cancels, and there is no verdict.
CostEstimate estimate_cost(std::span<const Pair> step_ms, double images, const CostTargets& targets,
                           bool same_rounds = true);

}  // namespace penstock
