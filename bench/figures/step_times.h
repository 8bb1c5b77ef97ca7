// SPDX-License-Identifier: Apache-2.0
// How long each step of a window took and what it consisted of, in its order and as a histogram.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/figures/svg.h"

namespace penstock {

struct StepSeries {
  std::vector<double> step_ms;  ///< in order
  /// Of each step, or empty: what the device waited for; see RunResult. The rest of the step is the
  /// device's own.
  std::vector<double> starved_ms, copy_exposed_ms, late_ms;
  /// The same in one, where it is not known why: drawn only where the three above are empty.
  std::vector<double> idle_ms;
  std::optional<double> ceiling_ms;  ///< a step of the device alone
};

/// The strip on the left, the histogram on the right, with one axis of ms. Long windows are drawn
/// in columns of several steps, with a dot for the longest of each; steps that are too long for the
/// figure are counted in words.
std::string step_times_figure(const StepSeries& times, const FigureSize& size);

}  // namespace penstock
