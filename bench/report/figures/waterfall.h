// SPDX-License-Identifier: Apache-2.0
// Draws what each rung of a ladder, or each feeder of a sweep, adds to the step time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock::report {

struct WaterfallBar {
  std::string label;
  double from_ms = 0;  ///< start of the bar
  std::optional<statistics::Estimate>
      added_ms{};  ///< none: not measured; negative values go to the left
  /// The bar is a total, such as the device's time, not an addition.
  bool whole = false;
  /// Draws the device's share, from 0 on, in front of the bar; for bars that stand side by side.
  bool over_device = false;
  std::string_view classes{};  ///< colour; empty: the colour of costs or of gains
};

struct Waterfall {
  std::string description;  ///< for users who cannot see the figure
  std::vector<WaterfallBar> bars;
  std::string axis = "ms per step";
};

/// Bars from top to bottom. A bar that begins where the previous one ends is connected to it.
std::string waterfall_figure(const Waterfall& waterfall, const FigureSize& size);

}  // namespace penstock::report
