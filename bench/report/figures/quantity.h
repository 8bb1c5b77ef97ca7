// SPDX-License-Identifier: Apache-2.0
// Formats numbers for readers: significant digits only, separated thousands, a unit.
#pragma once

#include <string>
#include <string_view>

#include "bench/statistics/estimate.h"

namespace penstock::report {

/// "3,571", "27.6", "0.013", "-2.1" with a real minus sign, "unlimited", "unknown" (not a number).
/// Shows `significant` digits, but never rounds whole digits.
std::string number_text(double value, int significant = 3);

/// With a fixed number of decimals.
std::string fixed_text(double value, int decimals);

/// Decimals that show `significant` digits of `largest`.
int decimals_for(double largest, int significant = 3);

/// "27.6 ms".
std::string quantity_text(double value, std::string_view unit, int significant = 3);

/// Decimals that show two digits of the half-width, but at most three digits of the largest of
/// value and ends, and at most `most`.
int decimals_of(const statistics::Estimate& estimate, int most = 2);

/// "27.6 ms (26.1 to 29.0)" with these decimals. If an end is missing: "27.6 ms (26.1 or more)",
/// "27.6 ms (no interval)".
std::string estimate_text(const statistics::Estimate& estimate, std::string_view unit,
                          int most_decimals = 2);

/// The interval alone: "(26.1 to 29.0)"; "(26.1..29.0)" for lowest and highest; "(once)" for a
/// single value.
std::string interval_text(const statistics::Estimate& estimate, int decimals);

/// True if both ends of the interval are finite.
bool has_interval(const statistics::Estimate& estimate);

}  // namespace penstock::report
