// SPDX-License-Identifier: Apache-2.0
// Comparing two conditions that were measured side by side in blocks: what drifts between blocks
// cancels in their ratios. Pure functions. Values have to be finite: anything else is a broken
// invariant.
#pragma once

#include <cstddef>
#include <span>

#include "bench/statistics/estimate.h"

namespace penstock {

struct Pair {
  double a = 0, b = 0;  ///< both above 0
};

/// b / a, by the mean of log ratios and Student's t over pairs. With one pair the interval is
/// infinitely wide upwards and 0 downwards; with none the value is 1.
Estimate paired_ratio(std::span<const Pair> pairs, double confidence = 0.95);

/// Mean of b - a over pairs, with Student's t. Values need not be above 0.
Estimate paired_difference(std::span<const Pair> pairs, double confidence = 0.95);

/// Mean of independent values, with Student's t; infinitely wide with fewer than two.
Estimate mean_of_blocks(std::span<const double> values, double confidence = 0.95);

/// Are ratios of step times b / a beyond the margin (0.01: 1 %)? slower: the 95 % interval lies
/// above 1 and its value beyond 1 + margin; faster: the same below; equal: the 90 % interval lies
/// within [1 / (1 + margin), 1 + margin] (two one-sided tests at 5 %: Schuirmann 1987); undecided:
/// anything else, and fewer than 3 pairs. The levels hold for one look at a number of pairs that
/// was fixed before, and nearly so where the interval's width ended it; not where a verdict did.
Verdict judge(std::span<const Pair> pairs, double margin);

/// How many more pairs would probably narrow the ratio's 95 % interval to a factor of
/// 1 + `half_width` (0.01: 1 %) on either side, with the spread seen so far; 0: it is that narrow.
/// At least 2 pairs. kMostPairs stands for more than anyone will measure.
inline constexpr std::size_t kMostPairs = 1'000'000;
std::size_t more_pairs(std::span<const Pair> pairs, double half_width);

/// Smallest ratio - 1 that `planned` pairs with this spread would call slower with a probability of
/// 80 %, at 5 % false alarms in either direction together, before any margin: the minimum
/// detectable effect, (t(0.975) + t(0.8)) times the standard error (Bloom 1995); with three pairs
/// that is a power of 77 %, from eight on of 80 %. At least 3 pairs each.
double detectable_effect(std::span<const Pair> pairs, std::size_t planned);

}  // namespace penstock
