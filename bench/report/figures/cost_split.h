// SPDX-License-Identifier: Apache-2.0
// What the cost of a feeder consists of, as stacked bars.
#pragma once

#include <string>
#include <vector>

#include "bench/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock {

/// In ms a step; see CostSplit.
struct SplitBar {
  std::string label;
  Estimate total_ms, starvation_ms, transfer_ms, interference_ms;
  double residual_ms = 0;
};

/// Parts below 0 lie to the left of the line at 0. All bars have the same scale.
std::string cost_split_figure(const std::vector<SplitBar>& bars, const FigureSize& size);

}  // namespace penstock
