// SPDX-License-Identifier: Apache-2.0
// Draws what each feeder supplies, compared with what the devices could use: one bar per feeder.
#pragma once

#include <string>
#include <vector>

#include "bench/report/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock::report {

struct SupplyBar {
  std::string label;
  statistics::Estimate supply_img_per_s;
  double demand_img_per_s = 0;
};

/// All bars have the same scale. If a supply exceeds the scale, its bar is cut and drawn torn.
std::string supply_bars_figure(const std::vector<SupplyBar>& bars, const FigureSize& size);

}  // namespace penstock::report
