// SPDX-License-Identifier: Apache-2.0
// Comparing two conditions that were measured at different times: nothing cancels, so the spread of
// both counts. Values are positive and compared by their logarithms. Pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "bench/statistics/estimate.h"

namespace penstock {

/// b / a: the ratio of geometric means, with Welch's interval (1947) of the difference of mean
/// logarithms. With fewer than two values on a side the interval is infinitely wide upwards and 0
/// downwards. At least one value on each side; `samples` is the smaller number of them.
Estimate unpaired_ratio(std::span<const double> a, std::span<const double> b,
                        double confidence = 0.95);

/// Are step times b / a beyond the margin? By the rules of judge in paired.h; undecided with fewer
/// than 3 values on a side.
Verdict judge_unpaired(std::span<const double> a, std::span<const double> b, double margin);

/// How many values on each side would probably narrow the ratio's 95 % interval to +- `half_width`
/// (0.01: 1 %), with the spread seen so far; at most 1000. At least 2 values on each side.
std::size_t values_needed(std::span<const double> a, std::span<const double> b, double half_width);

}  // namespace penstock
