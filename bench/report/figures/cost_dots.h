// SPDX-License-Identifier: Apache-2.0
// What share of a device's speed each row of a sweep loses: a dot and its interval, and every
// round.
#pragma once

#include <string>
#include <vector>

#include "bench/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock {

struct CostDot {
  std::string label;
  Estimate percent;
  std::vector<double> rounds;  ///< percent of each
};

std::string cost_dots_figure(const std::vector<CostDot>& dots, const FigureSize& size);

}  // namespace penstock
