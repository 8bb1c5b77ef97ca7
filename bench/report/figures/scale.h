// SPDX-License-Identifier: Apache-2.0
// From values to pixels, and the round values in between.
#pragma once

#include <vector>

namespace penstock {

/// Linear. `from` and `to` are pixels, in either order.
class Scale {
 public:
  /// Ends that are not finite, or the same, are moved apart.
  Scale(double low, double high, double from, double to) noexcept;

  /// Pixel of a value; values outside, infinite ones too, land on the nearer end; not a number: on
  /// the lower end.
  double operator()(double value) const noexcept;
  bool holds(double value) const noexcept { return value >= low_ && value <= high_; }

  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }
  double from() const noexcept { return from_; }
  double to() const noexcept { return to_; }

 private:
  double low_, high_, from_, to_;
};

struct Ticks {
  double step = 1;
  std::vector<double> values;  ///< ascending, within the ends
  int decimals = 0;            ///< that tell them apart
};

/// Multiples of 1, 2 or 5 times a power of ten between finite `low` < `high`, at most `count`
/// (at least 2) of them where possible. `whole`: no fractions.
Ticks ticks_between(double low, double high, int count, bool whole = false);

/// The least multiple of a step of ticks that is not below `value`: where an axis ends well.
double rounded_up(double value, int count);

}  // namespace penstock
