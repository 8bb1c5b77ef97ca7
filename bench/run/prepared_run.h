// SPDX-License-Identifier: Apache-2.0
// A run with what surrounds it: missing data, files, observers and other processes.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "bench/run/observe/run_watch.h"
#include "bench/run/processes/process_run.h"
#include "bench/run/runner.h"
#include "bench/run/trace/trace_files.h"
#include "dataflow/clock.h"

namespace penstock {

/// What a run writes, and who watches it.
struct RunOptions {
  TraceOptions trace;
  WatchOptions watch;
  std::string out;                ///< the caller's file for the result; steps are saved beside it
  bool may_extend = false;        ///< the feeder decides whether the window is extended
  std::function<void()> leave{};  ///< ends the process immediately
  /// Saves a partial result after another process was lost. Called from another thread.
  std::function<void(const RunResult&)> keep_partial{};
};

class PreparedRun {
 public:
  /// Makes missing data and opens files. A stop request ends the process soon, because nothing is
  /// measured yet. Throws the same as Runner.
  PreparedRun(const RunConfig& config, const RunOptions& options, const RunPeers& peers,
              const std::stop_token& stop);

  Runner& runner() noexcept { return *runner_; }
  const Runner::Components& components() const noexcept { return components_; }

  /// Call once. `table` may be null. The result is that of all processes.
  RunResult run(RunListener* table, std::stop_token stop);
  /// Call after run(). Throws DataError.
  void write_trace() { trace_.write(); }

 private:
  const RunOptions options_;
  const RunPeers peers_;
  Runner::Components components_;
  SteadyClock clock_;
  TraceFiles trace_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace penstock
