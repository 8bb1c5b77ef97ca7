// SPDX-License-Identifier: Apache-2.0
// What the edges between epochs of a loader cost: from the last batch of an epoch to the first one
// of the next. A window rarely has as many edges as an epoch has steps per edge, so steps at edges
// are kept apart, and put together with the number of steps in an epoch. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/record/run_result.h"

namespace penstock {

struct EpochEdges {
  double steps_per_epoch = 0;  ///< 0: not known
  std::size_t seen = 0;        ///< in the windows
  double steady_ms = 0;        ///< mean of the steps that are at no edge
  double longer_ms = 0;        ///< by which a step at an edge exceeds it, on average
  double first_batch_s = 0;    ///< from the start of the loader's process; 0: no loader

  /// The mean over an epoch.
  double step_ms() const noexcept {
    return steady_ms + (seen > 0 && steps_per_epoch > 0 ? longer_ms / steps_per_epoch : 0);
  }
  /// Whether an epoch ends that no window reached.
  bool misses_edges() const noexcept { return steps_per_epoch > 0 && seen == 0; }
};
EpochEdges epoch_edges(std::span<const RunResult* const> runs);

/// The values of `series`, which has one for each step, at steps that are at no edge. All of them
/// if the length of an epoch is not known.
std::vector<double> without_edges(const RunResult& result, const std::vector<double>& series);
/// `steady`, the mean at steps that are at no edge, and the edges of the window in an epoch's
/// proportion.
double with_edges(const RunResult& result, const std::vector<double>& series, double steady);

/// "an epoch of the loader has ..."; empty if the run has no loader with a known length.
std::string describe_edges(const RunResult& result);

}  // namespace penstock
