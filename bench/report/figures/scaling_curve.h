// SPDX-License-Identifier: Apache-2.0
// Draws a value over the number of ranks: measured and ideal, or several projections.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/report/figures/svg.h"

namespace penstock::report {

struct CurvePoint {
  double ranks = 0, value = 0;
  double low = 0, high = 0;  ///< drawn as a whisker if they differ
};

/// The style of a curve. The ideal is dashed. All styles differ in lightness or in dashes.
enum class CurveLook : unsigned char { first, second, third, fourth, fifth, ideal };

struct Curve {
  std::string name;  ///< shown in the legend
  CurveLook look = CurveLook::first;
  bool marked = false;  ///< draw a plus at each point
  std::vector<CurvePoint> points{};
};

struct ScalingCurves {
  std::string title{}, description{};
  std::string ranks_title{};    ///< title of the horizontal axis
  std::string value_title{};    ///< title of the vertical axis, with the unit
  std::string stamp{};          ///< written across the top, such as "projected, not measured"
  bool doublings = false;       ///< logarithmic axis: each doubling has the same width; else linear
  bool from_origin = false;     ///< for linear axes: begin at 0 ranks, and curves there at 0
  double at_least = 0;          ///< lower bound for the end of the vertical axis
  std::vector<Curve> curves{};  ///< the legend is above the plot, from the left
};

/// Points that are not finite are left out. Without points, returns a sentence.
std::string scaling_curves_figure(const ScalingCurves& data, const FigureSize& size);

}  // namespace penstock::report
