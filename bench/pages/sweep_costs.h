// SPDX-License-Identifier: Apache-2.0
// What each row of a sweep costs, with what is not known about it, in numbers and in a sentence.
// Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/figures/cost_split.h"
#include "bench/pages/page.h"
#include "bench/statistics/estimate.h"
#include "bench/sweep_result.h"

namespace penstock {

/// Fewer rounds have no interval that deserves the name.
inline constexpr std::size_t kLeastRounds = 3;
/// Costs below this share of the ceiling's step are none that anyone would act on.
inline constexpr double kCostMargin = 0.01;

/// A row with an input cost. From kLeastRounds rounds on that have both the row and its ceiling,
/// these are means over rounds with 95 % intervals (bench/statistics/paired.h); below, medians
/// without.
struct RowCost {
  const Row* row = nullptr;
  const Row* ceiling = nullptr;
  double ceiling_ms = 0;  ///< a step of the ceiling
  Estimate percent{};     ///< of the ceiling's rate
  Estimate ms_per_step{};
  std::vector<double> rounds{};  ///< percent of each
  Verdict verdict = Verdict::undecided;
  std::size_t more_rounds = 0;  ///< where undecided: about so many more might decide; 0: not known
};

/// Rows that are no ceiling and have an input cost, the worst first. They point into `sweep`.
std::vector<RowCost> row_costs(const SweepResult& sweep);

/// "queue loses 43 % (38 to 48) of what the devices could train: 27.6 ms of each step."
VerdictLine sentence_of(const SweepResult& sweep, const RowCost& cost);

/// One sentence for each row that is no ceiling: the worst first, then those without a cost.
std::vector<VerdictLine> verdict_of(const SweepResult& sweep);

/// The cost of a row by what its device waited for, from the step times of each round. None where
/// the runs did not record it.
std::vector<SplitBar> splits_of(const SweepResult& sweep, const std::vector<RowCost>& costs);

/// What rows have to say, each thing once: "queue, zmq-consume: fed by ...".
std::vector<std::string> notes_of(const SweepResult& sweep);

}  // namespace penstock
