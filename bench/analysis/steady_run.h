// SPDX-License-Identifier: Apache-2.0
// Finds the steady state of one run: the steps after its warm-up, and where their time went. Pure
// functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/record/run_result.h"
#include "bench/record/sweep_result.h"

namespace penstock::analysis {

/// Means over an epoch: over the kept steps, and over the edges of a loader's epochs in proportion
/// (bench/record/epoch_edges.h). In ms per step of all devices together.
struct SteadyRun {
  std::size_t steps = 0, dropped = 0;  ///< kept; left out at the beginning of the window
  bool drifting = false;
  double drift_percent = 0;
  double step_ms = 0;
  /// step_ms at the rate that the feeder can sustain. It exceeds step_ms if batches prepared before
  /// the window hid how slow the feeder is.
  double kept_up_ms = 0;
  double busy_ms = 0;  ///< the devices computed: step_ms less their idle time
  double starved_ms = 0, copy_exposed_ms = 0, late_ms = 0;
  bool split_known = false;  ///< the run has starved, copy and late times for each step
  double idle_ms() const noexcept { return step_ms - busy_ms; }
};

/// A run with fewer kept steps is not usable.
inline constexpr std::size_t kMinKeptSteps = 5;

/// Did the run end normally, with enough steps? Windows that earlier batches shortened (`draining`)
/// are usable, because warm-up is left out.
bool is_usable(const RunResult& result);

/// Leaves out the warm-up by MSER-5, and at least the steps that batches prepared before the window
/// could feed. `result` must have steps.
SteadyRun steady_state(const RunResult& result);

/// Returns the step times after the warm-up.
std::span<const double> kept_steps(const RunResult& result);

/// The usable runs of a row, in the order of blocks; and their steady states.
std::vector<const RunResult*> usable_runs(const Row& row);
std::vector<SteadyRun> steady_runs(const Row& row);

}  // namespace penstock::analysis
