// SPDX-License-Identifier: Apache-2.0
// Tells a listener what replicas leave in their logs, in order, on a thread of its own, so that
// nothing that is measured prints.
//
// Thread-safety: begin_leg from one thread at a time; close after it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/run_config.h"
#include "bench/runner.h"
#include "bench/step_log.h"

namespace penstock {

/// What `config` wants to hear of a step; index and seconds are the caller's to fill in.
StepReport report_of(const StepLog::Step& step, std::size_t ranks, const RunConfig& config);

class StepReporter {
 public:
  /// Both outlive the reporter.
  StepReporter(const RunConfig& config, RunListener& listener);
  ~StepReporter() { close(); }

  /// A log for `steps` steps of `ranks` ranks, whose first one has the number `first` in the
  /// window; 0 begins a window, of `extended_to` steps where those are more than were asked for.
  /// The log before it must have been closed. Lives as long as the reporter.
  StepLog& begin_leg(std::size_t first, std::size_t steps, std::size_t ranks,
                     std::size_t extended_to = 0);
  /// A log for the steps of an evaluation, of one rank; the same holds.
  StepLog& begin_evaluation(std::int64_t training_step, std::size_t steps);
  /// Closes that log; a complete report is told once its steps are.
  void end_evaluation(const EvaluationReport& report);
  /// No more legs will come; returns when all are told. Logs must have been closed.
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
  std::vector<std::unique_ptr<Part>> parts_;  // under mutex_, as is the next
  bool complete_ = false;
  std::jthread thread_;
};

}  // namespace penstock
