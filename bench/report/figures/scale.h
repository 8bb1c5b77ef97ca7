// SPDX-License-Identifier: Apache-2.0
// Maps values to pixels, and finds round values for ticks.
#pragma once

#include <vector>

namespace penstock::report {

/// A linear scale. `from` and `to` are pixels, in either order.
class Scale {
 public:
  /// If the ends are not finite or are equal, they are moved apart.
  Scale(double low, double high, double from, double to) noexcept;

  /// The pixel of a value. Values outside, also infinite ones, go to the nearer end; NaN goes to
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
  int decimals = 0;            ///< enough to distinguish them
};

/// Multiples of 1, 2 or 5 times a power of ten between finite `low` < `high`, if possible at most
/// `count` (at least 2) of them. `whole`: no fractions.
Ticks ticks_between(double low, double high, int count, bool whole = false);

/// The smallest multiple of a tick step that is at least `value`: a good end for an axis.
double rounded_up(double value, int count);

}  // namespace penstock::report
