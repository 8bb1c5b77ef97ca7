// SPDX-License-Identifier: Apache-2.0
// Passes finished steps from the replicas to a listener, in order, on a separate thread, so that no
// measured thread prints.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/run/runner.h"
#include "trainer/metrics.h"

namespace penstock {

/// The steps of a leg, from the replicas to the thread that reports them. A step is ready when
/// every rank has finished it. Nothing is allocated after construction.
///
/// Thread-safety: add from any replica's thread; wait and close from others.
class StepLog {
 public:
  /// One step, over all ranks of the process.
  struct Step {
    Nanoseconds completion{};         ///< when the last rank completed it, since the leg began
    std::int64_t images = 0;          ///< over all ranks
    double loss_sum = 0;              ///< over all ranks
    double l2_loss = 0;               ///< the same on every rank that knows it
    std::int64_t top1 = 0, top5 = 0;  ///< images, over all ranks
    bool finite = true;
    bool begins_epoch = false;  ///< on any rank
    std::size_t ranks_done = 0;
  };

  StepLog(std::size_t steps, std::size_t ranks) : ranks_(ranks), steps_(steps) {}

  void add(std::size_t index, const StepTimes& times) {
    const std::lock_guard lock(mutex_);
    if (index >= steps_.size()) return;
    Step& step = steps_[index];
    step.completion = std::max(step.completion, times.completion);
    step.images += times.result.images;
    step.loss_sum += times.result.loss;
    step.l2_loss = std::max(step.l2_loss, double{times.result.l2_loss});
    step.top1 += times.result.top1;
    step.top5 += times.result.top5;
    step.finite = step.finite && times.result.finite;
    step.begins_epoch = step.begins_epoch || times.begins_epoch;
    if (++step.ranks_done == ranks_) {
      ++ready_;  // ranks finish their steps in order, so steps become ready in order
      changed_.notify_all();
    }
  }

  /// Blocks until step `index` is ready (true) or will never be (false).
  bool wait(std::size_t index, Step& step) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_ > index || closed_; });
    if (ready_ <= index) return false;
    step = steps_[index];
    return true;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  /// The steps that every rank has finished.
  std::vector<Step> ready() const {
    const std::lock_guard lock(mutex_);
    return {steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(ready_)};
  }

  std::size_t ranks() const noexcept { return ranks_; }

 private:
  const std::size_t ranks_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // All below under mutex_.
  std::vector<Step> steps_;
  std::size_t ready_ = 0;
  bool closed_ = false;
};

/// The report of a step as `config` asks for it. The caller fills in index and seconds.
StepReport report_of(const StepLog::Step& step, std::size_t ranks, const RunConfig& config);

/// Thread-safety: begin_leg from one thread at a time; close afterwards.
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
