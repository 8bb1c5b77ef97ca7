// SPDX-License-Identifier: Apache-2.0
// Where the time of something went, as one stacked bar of parts that follow each other.
#pragma once

#include <string>
#include <vector>

#include "bench/figures/svg.h"
#include "bench/statistics/estimate.h"

namespace penstock {

struct TimeShare {
  std::string name;     ///< "made (producer)"
  Estimate ms;          ///< 0 or more
  std::string classes;  ///< its looks: "device", "transfer"
};

/// `label` says whose time it is: "a batch". Parts that are not finite are left out.
std::string time_shares_figure(const std::string& label, const std::vector<TimeShare>& parts,
                               const FigureSize& size);

}  // namespace penstock
