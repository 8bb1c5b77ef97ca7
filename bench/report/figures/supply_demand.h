// SPDX-License-Identifier: Apache-2.0
// Draws what a feeder can supply with more cores, compared with the demand of the device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report/figures/svg.h"
#include "bench/statistics/estimate.h"
#include "bench/statistics/scaling_law.h"

namespace penstock::report {

struct LawPoint {
  double threads = 1;
  statistics::Estimate img_per_s;
};

struct SupplyDemand {
  std::vector<statistics::ScalingPoint> measured;
  std::vector<LawPoint> law;    ///< threads ascending, with a band
  double demand_img_per_s = 0;  ///< 0: unknown
  std::optional<statistics::ThreadsNeeded> needed;
};

/// Beyond the largest measured number of threads, the background is shaded and labelled as
/// extrapolated.
std::string supply_demand_figure(const SupplyDemand& data, const FigureSize& size);

/// "5 cores needed: 4.2 (3.9 to 4.6)", "at least 5 cores needed", or the reason why the number is
/// unknown.
std::string needed_text(const statistics::ThreadsNeeded& needed);

}  // namespace penstock::report
