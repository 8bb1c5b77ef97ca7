// SPDX-License-Identifier: Apache-2.0
// Draws axes: grid lines, labels, titles, legends and whiskers.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/report/figures/scale.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {

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
