// SPDX-License-Identifier: Apache-2.0
// Something over the number of ranks: what was measured and the ideal, or several projections.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/figures/svg.h"

namespace penstock {

struct CurvePoint {
  double ranks = 0, value = 0;
  double low = 0, high = 0;  ///< a whisker where they differ
};

/// How a curve looks; the ideal is dashed. All differ in lightness, or in dashes.
enum class CurveLook : unsigned char { first, second, third, fourth, fifth, ideal };

struct Curve {
  std::string name;  ///< in the legend
  CurveLook look = CurveLook::first;
  bool marked = false;  ///< a plus at each point
  std::vector<CurvePoint> points{};
};

struct ScalingCurves {
  std::string title{}, description{};
  std::string ranks_title{};  ///< of the horizontal axis
  std::string value_title{};  ///< of the vertical axis, with the unit
  std::string stamp{};        ///< written across the top, such as "projected, not measured"
  bool doublings = false;     ///< each doubling of ranks takes the same room; else they are linear
  bool from_origin = false;   ///< a linear figure begins at 0 ranks, and curves there at 0
  double at_least = 0;        ///< the vertical axis reaches that high
  std::vector<Curve> curves{};  ///< the legend stands above the plot, from the left
};

/// Points that are not finite are left out; without any, a sentence.
std::string scaling_curves_figure(const ScalingCurves& data, const FigureSize& size);

}  // namespace penstock
