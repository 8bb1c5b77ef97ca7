// SPDX-License-Identifier: Apache-2.0
// A figure together with its uncertainty.
#pragma once

#include <cstddef>
#include <limits>
#include <string_view>

namespace penstock::statistics {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A value and its confidence interval (95 % unless stated otherwise). Bounds are infinite if there
/// is too little data; they are never NaN. The interval has zero width only if all measurements are
/// identical to the last bit, as on a simulated clock.
struct Estimate {
  double value = 0, low = 0, high = 0;
  std::size_t samples = 0;  ///< number of independent samples: blocks, or effective steps
  bool is_spread = false;   ///< low and high are the lowest and highest sample, not an interval
  double half_width() const noexcept { return (high - low) / 2; }
  bool operator==(const Estimate&) const = default;
};

/// The verdict from an interval and a practical margin.
enum class Verdict : unsigned char { slower, faster, equal, undecided };
constexpr std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::slower:
      return "slower";
    case Verdict::faster:
      return "faster";
    case Verdict::equal:
      return "equal within the margin";
    case Verdict::undecided:
      return "undecided";
  }
  return "";
}

}  // namespace penstock::statistics
