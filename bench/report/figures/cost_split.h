// SPDX-License-Identifier: Apache-2.0
// Draws the parts of a feeder's cost as stacked bars.
#pragma once

#include <string>
#include <vector>

#include "bench/report/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock::report {

/// All times in ms per step; see CostSplit.
struct SplitBar {
  std::string label;
  statistics::Estimate total_ms, starvation_ms, transfer_ms, interference_ms;
  double residual_ms = 0;
};

/// Negative parts are left of the line at 0. All bars have the same scale.
std::string cost_split_figure(const std::vector<SplitBar>& bars, const FigureSize& size);

}  // namespace penstock::report
