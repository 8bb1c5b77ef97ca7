// SPDX-License-Identifier: Apache-2.0
// The steps of the ranks of a run, and what follows from them: window, rate, idle time and parts of
// a step. Ranks are threads or processes: rank 0 computes the same from the steps of processes
// (processes/packed_steps.h) as from the steps of threads.
#pragma once

#include <cstddef>
#include <span>

#include "bench/record/run_result.h"

namespace penstock {

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

/// The devices of one process among all ranks of `steps`: `count` consecutive ones from `first`.
struct DevicesOf {
  std::size_t first = 0, count = 0;
};

/// For each process: percentiles of the times until its batches were ready, and of its devices'
/// waits for them. If ranks step together, also which process makes the others wait. A step has the
/// longest time of the process's devices. The first step of a leg does not count: devices are at
/// rest before it. `result.ranks` and the result's steps must be those of the same processes.
void add_rank_waits(const RankSteps& steps, std::span<const DevicesOf> processes,
                    RunResult& result);

/// The time that the busiest workers of the run's feeder work for a step's batch, in ms; 0: no
/// stage is timed.
double work_ms_of(const RunResult& result);

/// Adds a note if steps of slower ranks lie outside the window.
void note_steps_outside(RunResult& result);

}  // namespace penstock
