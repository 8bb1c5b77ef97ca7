// SPDX-License-Identifier: Apache-2.0
// Draws how many batches were ready in each ring over the window.
#pragma once

#include <string>
#include <vector>

#include "bench/report/figures/svg.h"

namespace penstock::report {

/// See QueueUse.
struct QueueTrack {
  std::string name;
  int slots = 0;
  double mean_filled = 0, empty_percent = 0, full_percent = 0;
  std::vector<double> filled;  ///< means over equal parts of the window
};

/// One strip per ring, upstream first, on a common time axis of `window_s` seconds.
std::string queue_occupancy_figure(const std::vector<QueueTrack>& tracks, double window_s,
                                   const FigureSize& size);

}  // namespace penstock::report
