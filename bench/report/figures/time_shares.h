// SPDX-License-Identifier: Apache-2.0
// Draws how a time is composed, as one stacked bar of consecutive parts.
#pragma once

#include <string>
#include <vector>

#include "bench/report/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock::report {

struct TimeShare {
  std::string name;         ///< "made (producer)"
  statistics::Estimate ms;  ///< 0 or more
  std::string classes;      ///< style classes: "device", "transfer"
};

/// `label` names what the time belongs to: "a batch". Parts that are not finite are left out.
std::string time_shares_figure(const std::string& label, const std::vector<TimeShare>& parts,
                               const FigureSize& size);

}  // namespace penstock::report
