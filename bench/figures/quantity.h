// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them: as many digits as mean something, thousands apart, the unit behind.
#pragma once

#include <string>
#include <string_view>

#include "bench/statistics/estimate.h"

namespace penstock {

/// "3,571", "27.6", "0.013", "-2.1" with a minus sign proper, "unlimited", "unknown" (not a
/// number); `significant` digits, and no decimals from there on.
std::string number_text(double value, int significant = 3);

/// With a fixed number of decimals.
std::string fixed_text(double value, int decimals);

/// Decimals that show `significant` digits of the larger of these.
int decimals_for(double largest, int significant = 3);

/// "27.6 ms"; no unit: the number alone.
std::string quantity_text(double value, std::string_view unit, int significant = 3);

/// Decimals that show two digits of the half-width, but no more than three digits of the largest
/// of the three, and no more than `most`.
int decimals_of(const Estimate& estimate, int most = 2);

/// "27.6 ms (26.1 to 29.0)" with so many decimals. Sides without an end: "27.6 ms (26.1 or more)",
/// "27.6 ms (no interval)".
std::string estimate_text(const Estimate& estimate, std::string_view unit, int most_decimals = 2);

/// "(26.1 to 29.0)" of it; "(26.1..29.0)" of the lowest and highest, "(once)" of a single one.
std::string interval_text(const Estimate& estimate, int decimals);

/// Does it say between what values the truth lies, on both sides?
bool has_interval(const Estimate& estimate);

}  // namespace penstock
