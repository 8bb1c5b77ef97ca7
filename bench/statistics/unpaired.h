// SPDX-License-Identifier: Apache-2.0
// Compares two conditions that were measured at different times. Drift does not cancel, so the
// spread of both counts. Values are positive and compared by their logarithms. Pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "bench/statistics/estimate.h"

namespace penstock::statistics {

/// The ratio b / a of geometric means, with Welch's interval (1947) of the difference of mean
/// logarithms. With fewer than two values on a side, the interval is 0 to infinity. Each side needs
/// at least one value. `samples` is the size of the smaller side.
Estimate unpaired_ratio(std::span<const double> a, std::span<const double> b,
                        double confidence = 0.95);

/// Judges step times b / a against the margin, by the rules of judge in paired.h. The verdict is
/// undecided with fewer than 3 values on a side.
Verdict judge_unpaired(std::span<const double> a, std::span<const double> b, double margin);

/// How many values per side would probably narrow the ratio's 95 % interval to +- `half_width`
/// (0.01: 1 %), with the present spread; at most 1000. Each side needs at least 2 values.
std::size_t values_needed(std::span<const double> a, std::span<const double> b, double half_width);

}  // namespace penstock::statistics
