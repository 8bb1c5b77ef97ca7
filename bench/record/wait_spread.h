// SPDX-License-Identifier: Apache-2.0
// How the waits of a device for a loader are spread over steps, and what they take of its time.
// Pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// The fewest steps that hold four fifths of the waiting are late; the mean wait there and in the
/// others.
struct WaitSpread {
  double late_percent = 0, late_ms = 0, other_ms = 0;

  /// Even waits hold four fifths of the waiting in four fifths of the steps.
  bool is_even() const noexcept { return late_percent > 60; }
};
/// `waits_ms`: one for each step. Zeros if there are none.
WaitSpread spread_of_waits(std::vector<double> waits_ms);
/// "10 % of the steps wait 199 ms each, the others 0.0 ms", or "11.2 ms before most steps"
std::string to_string(const WaitSpread& spread);

/// The mean wait in the first and in the last third of the steps, from the first that waits on.
struct WaitGrowth {
  double first_ms = 0, last_ms = 0;
};
/// None unless each quarter of the last third waits longer than any of the first third, and twice
/// its mean: a few late batches are no growth. Without the first steps that wait for nothing, too:
/// a queue that drains hides the waits. `waits_ms`: in order; fewer than 60 do not tell.
std::optional<WaitGrowth> growth_of_waits(std::span<const double> waits_ms);
/// "from 1.2 ms at first to 14.0 ms in the end"
std::string to_string(const WaitGrowth& growth);

}  // namespace penstock
