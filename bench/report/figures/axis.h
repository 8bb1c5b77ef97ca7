// SPDX-License-Identifier: Apache-2.0
// Axes of figures: grid lines, labels, titles.
#pragma once

#include <string_view>

#include "bench/figures/scale.h"
#include "bench/figures/svg.h"

namespace penstock {

/// What an axis says.
struct AxisText {
  std::string_view title;  ///< with the unit
  bool whole = false;      ///< values are whole numbers
};

/// Room for the labels and the title of a horizontal axis.
inline constexpr double kAxisHeight = 38;

/// Grid lines from `top` to `bottom`, labels and the title below.
void horizontal_axis(Svg& svg, const Scale& x, double top, double bottom, const AxisText& text);

/// Room that the labels of a vertical axis take, left of it.
double vertical_axis_width(const Scale& y, bool whole = false);

/// Grid lines from `left` to `right`, labels left of them, the title above the upper end.
void vertical_axis(Svg& svg, const Scale& y, double left, double right, const AxisText& text);

/// One entry of a legend: a swatch, or a piece of a line, and words.
struct LegendEntry {
  std::string_view classes;
  std::string text;
  bool line = false;
};
/// Entries from left to right, over as many lines as they need from `top` on; returns where the
/// last line ends.
double legend(Svg& svg, double left, double top, double right,
              std::span<const LegendEntry> entries);

/// A line from `low` to `high` with end marks, at height `y`. Where an end lies beyond the scale
/// the line is cut, and ends in an arrowhead; an interval without both ends, or of one value, is
/// not drawn.
void whisker(Svg& svg, const Scale& x, double low, double high, double y);

}  // namespace penstock
