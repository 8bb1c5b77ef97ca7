// SPDX-License-Identifier: Apache-2.0
// Draws the share of a device's speed that each row of a sweep loses: a dot with its interval, and
// every round.
#pragma once

#include <string>
#include <vector>

#include "bench/report/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock::report {

struct CostDot {
  std::string label;
  statistics::Estimate percent;
  std::vector<double> rounds;  ///< percent per round
};

std::string cost_dots_figure(const std::vector<CostDot>& dots, const FigureSize& size);

}  // namespace penstock::report
