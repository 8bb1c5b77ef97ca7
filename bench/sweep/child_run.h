// SPDX-License-Identifier: Apache-2.0
// Runs one repetition of a sweep as `penstock run --json` in a child process. If its feeder
// receives from outside, `penstock serve` runs in a second child, connected by a socket in a
// private folder.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "bench/run/observe/progress.h"
#include "bench/run/processes/child_process.h"
#include "bench/run/runner.h"
#include "bench/sweep/sweep_runner.h"
#include "dataflow/clock.h"
#include "feeders/feeder.h"

namespace penstock {

struct ChildRunOptions {
  std::string program;       ///< this executable
  Nanoseconds timeout{};     ///< for one run
  bool show_stderr = false;  ///< pass on standard error of the children
  /// Receives the progress of the run a few times a second, on another thread, while run_in_child
  /// waits; null: progress is not reported.
  std::function<void(const Progress&)> on_progress{};
};

/// Runs `config`, whose feeder is `feeder`. If a child fails in any way, returns a failed result
/// with the reason. A stop request ends the run; its result is then partial. No child survives the
/// call.
RunResult run_in_child(const RunConfig& config, const FeederEntry& feeder,
                       const ChildRunOptions& options, const std::stop_token& stop);

/// run_in_child() with the feeder of each configuration. Borrows `options`.
SweepRunner::Run runs_in_children(const ChildRunOptions& options);

/// True if the caller must start a producer for a run of `config`.
bool needs_producer(const RunConfig& config, const FeederEntry& feeder);

/// Converts the end of a child into the result of its run of `config`.
RunResult result_of(const ChildExit& exit, const RunConfig& config);

}  // namespace penstock
