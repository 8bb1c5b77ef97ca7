// SPDX-License-Identifier: Apache-2.0
// What each rung of a ladder, or each feeder of a sweep, adds to the time of a step.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock {

struct WaterfallBar {
  std::string label;
  double from_ms = 0;                  ///< where it begins
  std::optional<Estimate> added_ms{};  ///< not measured: none; goes to the left where negative
  /// It is a time of its own and not an addition: the device's.
  bool whole = false;
  /// The device's share, from 0 on, is drawn in front of it: for bars that stand side by side.
  bool over_device = false;
  std::string_view classes{};  ///< colour; empty: that of costs, or of gains
};

struct Waterfall {
  std::string description;  ///< for those who cannot see it
  std::vector<WaterfallBar> bars;
  std::string axis = "ms per step";
};

/// Bars from top to bottom; a bar that begins where the one before it ends is joined to it.
std::string waterfall_figure(const Waterfall& waterfall, const FigureSize& size);

}  // namespace penstock
