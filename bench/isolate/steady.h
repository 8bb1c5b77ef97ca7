// SPDX-License-Identifier: Apache-2.0
// What one run says about its steady state: the steps behind its warm-up, and where their time
// went. Pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "bench/runner.h"

namespace penstock {

/// Means over the steps that were kept, in ms a step of all devices together.
struct SteadyRun {
  std::size_t steps = 0, dropped = 0;  ///< kept; left out at the window's begin
  bool drifting = false;
  double drift_percent = 0;
  double step_ms = 0;
  /// The same at the rate that the feeder kept up: more than step_ms where batches that lay ready
  /// before the window hid how slow it is.
  double kept_up_ms = 0;
  double busy_ms = 0;  ///< the devices computed: step_ms less what they were idle
  double starved_ms = 0, copy_exposed_ms = 0, late_ms = 0;
  bool split_known = false;  ///< the run has the three for each step
  double idle_ms() const noexcept { return step_ms - busy_ms; }
};

/// Fewer kept steps say nothing.
inline constexpr std::size_t kMinKeptSteps = 5;

/// Did the run end as it should, with enough steps? Windows that batches of before them shortened
/// (`draining`) are good enough where warm-up is left out.
bool is_usable(const RunResult& result);

/// Steps to leave out: MSER-5, and at least those that what lay ready before the window could feed.
/// `result` has steps.
SteadyRun steady_state(const RunResult& result);

/// The step times behind the warm-up.
std::span<const double> kept_steps(const RunResult& result);

}  // namespace penstock
