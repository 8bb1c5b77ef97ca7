// SPDX-License-Identifier: Apache-2.0
// Draws the duration and the parts of each step of a window, in order and as a histogram.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report/figures/svg.h"

namespace penstock::report {

struct StepSeries {
  std::vector<double> step_ms;  ///< in order
  /// Per step, or empty: the times that the device waited; see RunResult. The rest of a step is the
  /// device's work.
  std::vector<double> starved_ms, copy_exposed_ms, late_ms;
  /// The total idle time, if the reasons are unknown. Drawn only if the three vectors above are
  /// empty.
  std::vector<double> idle_ms;
  std::optional<double> ceiling_ms;  ///< a step of the device without feeding
};

/// The strip is on the left, the histogram on the right; both have one axis of ms. For long
/// windows, each column stands for several steps, with a dot for the longest one. A text gives the
/// number of steps that are too long for the figure.
std::string step_times_figure(const StepSeries& times, const FigureSize& size);

}  // namespace penstock::report
