// SPDX-License-Identifier: Apache-2.0
// Accelerator utilisation (AU), as the rules of MLPerf Storage define it and as the DLIO benchmark,
// which measures it, computes it. They differ in what counts as computing: the rules count the
// nominal time of a step, DLIO counts how long its sleep lasted.
#pragma once

#include <span>

#include "bench/record/run_result.h"

namespace penstock {

/// AU by the rules: 100 * steps * computation_time / running time. The running time excludes the
/// input of the first step: `first_input_ms` is the time before that step computed. `step_ms` has
/// the time from each step's end to the next step's end. 0 without steps.
double au_percent_rule(std::span<const double> step_ms, double computation_ms,
                       double first_input_ms);

/// AU as DLIO computes it: 100 * sum of the measured computing times / (running time - times of the
/// excluded steps). DLIO excludes the first step by default. `compute_ms` has one element for each
/// element of `step_ms`, and none is longer. 0 without other steps.
double au_percent_dlio(std::span<const double> step_ms, std::span<const double> compute_ms);

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
