// SPDX-License-Identifier: Apache-2.0
// How many batches lay ready in each ring, over the window.
#pragma once

#include <string>
#include <vector>

#include "bench/figures/svg.h"

namespace penstock {

/// See QueueUse.
struct QueueTrack {
  std::string name;
  int slots = 0;
  double mean_filled = 0, empty_percent = 0, full_percent = 0;
  std::vector<double> filled;  ///< means in equal parts of the window
};

/// One strip for each ring, upstream first, on one time axis of `window_s`.
std::string queue_occupancy_figure(const std::vector<QueueTrack>& tracks, double window_s,
                                   const FigureSize& size);

}  // namespace penstock
