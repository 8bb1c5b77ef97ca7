// SPDX-License-Identifier: Apache-2.0
// What a feeder can supply with more cores, against what the device wants.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/figures/svg.h"
#include "bench/statistics/estimate.h"
#include "bench/statistics/scaling_law.h"

namespace penstock {

struct LawPoint {
  double threads = 1;
  Estimate img_per_s;
};

struct SupplyDemand {
  std::vector<ScalingPoint> measured;
  std::vector<LawPoint> law;    ///< threads ascending; its band
  double demand_img_per_s = 0;  ///< 0: not known
  std::optional<ThreadsNeeded> needed;
};

/// Beyond the most threads measured the ground is shaded, and called extrapolated.
std::string supply_demand_figure(const SupplyDemand& data, const FigureSize& size);

/// "5 cores needed: 4.2 (3.9 to 4.6)", "at least 5 cores needed", or why there is no such number.
std::string needed_text(const ThreadsNeeded& needed);

}  // namespace penstock
