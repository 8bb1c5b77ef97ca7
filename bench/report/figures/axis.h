// SPDX-License-Identifier: Apache-2.0
// Maps values to pixels, finds round values for ticks, and draws axes: grid lines, labels, titles,
// legends.
#pragma once

#include <string_view>
#include <vector>

#include "bench/report/figures/svg.h"

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

/// The texts of an axis.
struct AxisText {
  std::string_view title;  ///< with the unit
  bool whole = false;      ///< values are whole numbers
};

/// Height for the labels and title of a horizontal axis.
inline constexpr double kAxisHeight = 38;

/// Draws grid lines from `top` to `bottom`, with labels and title below.
void horizontal_axis(Svg& svg, const Scale& x, double top, double bottom, const AxisText& text);

/// Width for the labels of a vertical axis, which are left of it.
double vertical_axis_width(const Scale& y, bool whole = false);

/// Draws grid lines from `left` to `right`, labels on their left, and the title above the upper
/// end.
void vertical_axis(Svg& svg, const Scale& y, double left, double right, const AxisText& text);

/// An entry of a legend: a swatch or a piece of a line, and a text.
struct LegendEntry {
  std::string_view classes;
  std::string text;
  bool line = false;
};
/// Draws entries from left to right, from `top` on, on as many lines as needed. Returns the end of
/// the last line.
double legend(Svg& svg, double left, double top, double right,
              std::span<const LegendEntry> entries);

/// Draws a line from `low` to `high` with end marks, at height `y`. If an end is beyond the scale,
/// the line is cut and ends in an arrowhead. Draws nothing for an interval of one value or without
/// both ends.
void whisker(Svg& svg, const Scale& x, double low, double high, double y);

}  // namespace penstock::report
