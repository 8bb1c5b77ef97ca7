// SPDX-License-Identifier: Apache-2.0
// A figure that comes with what is not known about it.
#pragma once

#include <cstddef>
#include <string_view>

namespace penstock {

/// A value and its confidence interval (95 % unless said otherwise). Bounds may be infinite, where
/// there is too little to tell; none is ever NaN. An interval has no width only if all that was
/// measured is alike to the last bit, as on a simulated clock.
struct Estimate {
  double value = 0, low = 0, high = 0;
  std::size_t samples = 0;  ///< independent ones behind it: blocks, or effective steps
  bool is_spread = false;   ///< low and high are the lowest and highest sample, and no interval
  double half_width() const noexcept { return (high - low) / 2; }
  bool operator==(const Estimate&) const = default;
};

/// What an interval and a practical margin say together.
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

}  // namespace penstock
