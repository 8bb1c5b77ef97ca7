// SPDX-License-Identifier: Apache-2.0
// Passes steps from the replicas' logs to a listener, in order, on a separate thread, so that no
// measured thread prints.
//
// Thread-safety: begin_leg from one thread at a time; close afterwards.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/run/runner.h"
#include "bench/run/step_log.h"

namespace penstock {

/// The report of a step as `config` asks for it. The caller fills in index and seconds.
StepReport report_of(const StepLog::Step& step, std::size_t ranks, const RunConfig& config);

class StepReporter {
 public:
  /// Both arguments must outlive the reporter.
  StepReporter(const RunConfig& config, RunListener& listener);
  ~StepReporter() { close(); }

  /// Returns a log for `steps` steps of `ranks` ranks. `first` is the number of its first step in
  /// the window; 0 begins a window. `extended_to` is the length of a window that is longer than
  /// requested. The previous log must be closed. The log lives as long as the reporter.
  StepLog& begin_leg(std::size_t first, std::size_t steps, std::size_t ranks,
                     std::size_t extended_to = 0);
  /// Returns a log for the steps of an evaluation by one rank. The same rules apply.
  StepLog& begin_evaluation(std::int64_t training_step, std::size_t steps);
  /// Closes that log. The listener gets a complete report after its steps.
  void end_evaluation(const EvaluationReport& report);
  /// Call after the last leg, when all logs are closed. Returns when the listener has got
  /// everything.
  void close();

 private:
  struct Part {
    std::size_t first = 0;  // number of its first step in the window
    std::size_t extended_to = 0;
    std::unique_ptr<StepLog> log;
    bool evaluates = false;
    std::int64_t training_step = 0;
    EvaluationReport evaluation;  // written before its log closes
  };
  StepLog& begin(std::unique_ptr<Part> part);
  void run();
  void tell_training(const Part& part);
  void tell_evaluation(const Part& part);

  const RunConfig& config_;
  RunListener& listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Part>> parts_;  // parts_ and complete_ are under mutex_
  bool complete_ = false;
  std::jthread thread_;
};

}  // namespace penstock
