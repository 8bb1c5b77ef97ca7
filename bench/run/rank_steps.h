// SPDX-License-Identifier: Apache-2.0
// The steps of the ranks of a run, and what follows from them: window, rate, idle time, parts of a
// step and accelerator utilisation. Ranks are threads or processes. Processes send their steps to
// rank 0, which computes the same from them as from the steps of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/metrics.h"

namespace penstock {

struct RunResult;

/// Plain values. One thread at a time fills them.
struct RankSteps {
  std::vector<std::vector<Leg>> legs;  ///< by leg of the window, then by rank
  /// Ranks that wait for each other in a step: this many consecutive ones; 0: all of them.
  std::size_t together = 0;
  std::uint64_t machine = 0;  ///< names the one whose clock the times are of; see join_steps
  bool exchanges = false;     ///< StepTimes::exchange was measured
};

/// Computes window, rate, series of steps, parts, idle time and accelerator utilisation of
/// `result`, and replaces earlier values. Leaves `result` unchanged if there are no legs.
///
/// The window of a leg is the time in which all ranks train: from the last rank's begin to the
/// first rank's end. A step across an edge counts in proportion to its part inside. Facts count the
/// steps that begin after the window, if ranks do not wait for each other.
///
/// Ranks that wait for each other have one series: a step lasts from the last rank's end to the
/// last rank's next end, and devices are idle until the last rank starts, whose batch says why. A
/// rank that starts earlier waits for the last one, so that time is no computing. The exchange
/// lasts from the end of backward, on the rank that started last, to the last rank's end. Ranks
/// that do not wait for each other have a series each, and the run has their mean, step by step.
void add_steps(const RankSteps& steps, RunResult& result);

/// Adds a note if steps of slower ranks lie outside the window.
void note_steps_outside(RunResult& result);

/// The steps of a process as bytes, for join_steps in the same build of the program.
std::string pack_steps(const RankSteps& steps);
/// Appends the ranks of another process to `all`; the first call fills it. Times of a process on
/// another machine, whose clock differs, are shifted so that its legs begin with those of the first
/// process: processes meet before each leg. Throws DataError for bytes that are cut off.
void join_steps(RankSteps& all, std::string_view bytes);

// Accelerator utilisation (AU), as the rules of MLPerf Storage define it and as the DLIO benchmark,
// which measures it, computes it. They differ in what counts as computing: the rules count the
// nominal time of a step, DLIO counts how long its sleep lasted.

/// MLPerf Storage's ResNet-50 passes if the utilisation is at least this.
inline constexpr double kAuPassPercent = 90;

/// AU by the rules: 100 * steps * computation_time / running time. The running time excludes the
/// input of the first step: `first_input_ms` is the time before that step computed. `step_ms` has
/// the time from each step's end to the next step's end. 0 without steps.
double au_percent_rule(std::span<const double> step_ms, double computation_ms,
                       double first_input_ms);

/// AU as DLIO computes it: 100 * sum of the measured computing times / (running time - times of the
/// excluded steps), over steps [skip, size). DLIO excludes the first step by default. `compute_ms`
/// has one element for each element of `step_ms`, and none is longer. 0 without steps.
double au_percent_dlio(std::span<const double> step_ms, std::span<const double> compute_ms,
                       std::size_t skip = 1);

/// The computing time that DLIO would measure in a step of `step_ms` in which the device was idle
/// for `idle_ms`. DLIO's clock stops when the sleep that stands for computing has ended, which is
/// late by `oversleep_ms`. If the next batch was not ready meanwhile, this time counts as computing
/// instead of waiting. So oversleep raises the utilisation of a device that waits for input. The
/// result is at most `step_ms`.
double dlio_compute_ms(double step_ms, double idle_ms, double oversleep_ms);

/// Adds au_percent_rule, au_percent_dlio and au_pass_line_percent to the facts of a run on an
/// emulated device (a run with the fact emulated_step_ms) with at least two steps. Other runs stay
/// unchanged. Waiting for other ranks is no computing.
void add_accelerator_utilisation(RunResult& result);

}  // namespace penstock
