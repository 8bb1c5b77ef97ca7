// SPDX-License-Identifier: Apache-2.0
// What a feeder supplies against what the devices want: one bar for each feeder.
#pragma once

#include <string>
#include <vector>

#include "bench/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock {

struct SupplyBar {
  std::string label;
  Estimate supply_img_per_s;
  double demand_img_per_s = 0;
};

/// All bars have the same scale. A supply of many times the demand is cut, and its bar is torn.
std::string supply_bars_figure(const std::vector<SupplyBar>& bars, const FigureSize& size);

}  // namespace penstock
