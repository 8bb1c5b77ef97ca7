// SPDX-License-Identifier: Apache-2.0
// Accelerator utilisation (AU) as MLPerf Storage states it in its rules, and as the DLIO benchmark,
// which measures it, computes it. They differ in what counts as computing: the rules take the
// stated time of a step, DLIO how long its sleep lasted.
#pragma once

#include <span>

#include "bench/runner.h"

namespace penstock {

/// A run of MLPerf Storage's ResNet-50 passes from this utilisation on.
inline constexpr double kAuPassPercent = 90;

/// By the rules: 100 * steps * computation_time / running time, where the running time is without
/// the first step's input: `first_input_ms` is what passed before it computed. Sums over
/// `step_ms`, the time from each step's end to the next one's; 0 without steps.
double au_percent_rule(std::span<const double> step_ms, double computation_ms,
                       double first_input_ms);

/// As DLIO computes it: 100 * sum of what was measured as computing / (running time - times of the
/// steps that are left out), over steps [skip, size); DLIO's default is to leave out the first one.
/// `compute_ms` has an element for each of `step_ms`, at most as long. 0 without steps.
double au_percent_dlio(std::span<const double> step_ms, std::span<const double> compute_ms,
                       std::size_t skip = 1);

/// What DLIO would have measured as computing in a step of `step_ms` in which the device was idle
/// for `idle_ms`: its clock stops when the sleep that stands for computing has ended, late by
/// `oversleep_ms`, also where the next batch was not there yet, and that time then counts as
/// computing instead of as waiting. So oversleep raises this utilisation of a device that waits for
/// input. A step is no longer than it was.
double dlio_compute_ms(double step_ms, double idle_ms, double oversleep_ms);

/// Adds au_percent_rule, au_percent_dlio and au_pass_line_percent to the facts of a run on an
/// emulated device (one with the fact emulated_step_ms) that took at least two steps; else nothing.
/// Over all ranks: a step lasts from the last rank's end to the last rank's next end, and waiting
/// for other ranks within a step, which DLIO counts as waiting, counts as computing.
void add_accelerator_utilisation(RunResult& result);

}  // namespace penstock
