// SPDX-License-Identifier: Apache-2.0
// Compares two conditions that were measured side by side in blocks. Drift between blocks cancels
// in their ratios. Pure functions. Values must be finite; other values break an invariant.
#pragma once

#include <cstddef>
#include <span>

#include "bench/statistics/estimate.h"

namespace penstock::statistics {

struct Pair {
  double a = 0, b = 0;  ///< both above 0
};

/// The ratio b / a, by the mean of log ratios and Student's t over pairs. With one pair the
/// interval is 0 to infinity; with none the value is 1.
Estimate paired_ratio(std::span<const Pair> pairs, double confidence = 0.95);

/// Mean of independent values, with Student's t; the interval is infinite with fewer than two.
Estimate mean_of_blocks(std::span<const double> values, double confidence = 0.95);

/// Judges ratios of step times b / a against the margin (0.01: 1 %).
/// - slower: the interval lies above 1, and its value is beyond 1 + margin; faster: likewise below.
/// - equal: the interval with twice the risk (0.95: the 90 % interval) lies within [1 / (1 +
/// margin),
///   1 + margin] (two one-sided tests: Schuirmann 1987).
/// - undecided: anything else, and fewer than 3 pairs.
/// The levels hold for one look at a fixed number of pairs, and nearly so if the interval's width
/// stopped the measurement. They do not hold if a verdict stopped it.
Verdict judge(std::span<const Pair> pairs, double margin, double confidence = 0.95);
/// The rules of judge, for the ratio's interval (`difference`) and that with twice the risk.
Verdict verdict_of(const Estimate& difference, const Estimate& equivalence, double margin);

/// How many more pairs would probably narrow the ratio's 95 % interval to a factor of
/// 1 + `half_width` (0.01: 1 %) on either side, with the present spread; 0: it is narrow enough.
/// Needs at least 2 pairs. kMostPairs is the upper limit.
inline constexpr std::size_t kMostPairs = 1'000'000;
std::size_t more_pairs(std::span<const Pair> pairs, double half_width);

/// The minimum detectable effect: the smallest ratio - 1 that `planned` pairs with this spread
/// would call slower with a probability of 80 %, at 5 % false alarms in both directions together,
/// before any margin. It is (t(0.975) + t(0.8)) times the standard error (Bloom 1995). The real
/// power is 77 % with three pairs and 80 % from eight pairs on. Both counts are at least 3.
double detectable_effect(std::span<const Pair> pairs, std::size_t planned);

}  // namespace penstock::statistics
