// SPDX-License-Identifier: Apache-2.0
// Runs the parts of a run: owns its threads, and decides from leg to leg how many steps come next.
//
// All ranks wait between legs, with their devices idle; rank 0 then decides. A request to stop from
// outside ends feeders, stagers and rank 0, which stops at the end of a step; the other ranks
// follow because nothing more comes. So rank 0's weights are always those after whole steps.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/checkpoint_keeper.h"
#include "bench/due_points.h"
#include "bench/evaluator.h"
#include "bench/run_parts.h"
#include "bench/run_window.h"
#include "bench/runner.h"
#include "bench/step_reporter.h"

namespace penstock {

class RunSession {
 public:
  /// All outlive the session. `abandon` is the source whose token `parts` was made with.
  /// `evaluator` is null where nothing is evaluated.
  RunSession(RunParts& parts, Evaluator* evaluator, RunListener& listener,
             std::stop_source& abandon);

  /// Runs once. A failure on the way is in the result, not thrown.
  RunResult run(std::stop_token external);

 private:
  void start_threads();
  void join_threads();
  bool shares_cores() const;
  void run_replica(std::size_t rank);
  std::size_t next_leg(std::size_t rank);
  void pause();
  void meet_other_processes();
  Nanoseconds patience_between_legs();
  void save_at_end();
  bool evaluate();
  std::int64_t position() const;
  std::size_t cut(std::int64_t steps) const;
  std::size_t decide_leg();
  std::size_t steps_to_settle();
  std::vector<Feeder*> feeders() const;
  std::size_t begin_window();
  std::size_t begin_leg();
  void end_leg();
  void warn_nonfinite(std::int64_t step, bool finite_loss);
  Snapshot snapshot();
  std::vector<std::pair<std::string, BatchRing*>> rings() const;  // upstream first
  void watch_rings(bool afresh);
  void record_failure(std::exception_ptr failure);
  RunResult collect(bool stopped_from_outside);
  void add_condition(RunResult& result) const;
  void set_outcome(RunResult& result, bool stopped_from_outside) const;
  void judge_reserve(RunResult& result) const;
  std::optional<ReserveUse> use_at_producer(const RunResult& result) const;

  RunParts& parts_;
  Evaluator* const evaluator_;
  const RunConfig& config_;
  Clock& clock_;
  RunListener& listener_;
  std::stop_source& abandon_;  // ends ranks where they are
  std::stop_source ending_;    // requested from outside, or with abandon_
  const std::stop_callback<std::function<void()>> abandoned_;
  StepReporter reporter_;
  const DuePoints evaluation_points_;
  // Of rank 0's thread alone, until it has ended.
  CheckpointKeeper keeper_;
  const TimingCost timing_cost_;
  std::vector<EvaluationReport> evaluations_;
  bool goal_reached_ = false;

  std::mutex mutex_;
  Gate gate_;
  // All below under mutex_, until the threads have ended.
  std::size_t waiting_ranks_ = 0, leg_steps_ = 0;
  std::uint64_t legs_begun_ = 0;
  Time first_leg_{};       // when it began
  Time settling_since_{};  // the end of warm-up as asked for
  std::int64_t warm_up_left_ = 0, window_left_ = 0, wanted_steps_ = 0;
  int windows_ = 0;
  std::int64_t discarded_steps_ = 0;
  std::set<std::int64_t> nonfinite_steps_, skipped_steps_;  // each told by one rank or several
  bool data_ended_ = false, window_complete_ = false;
  std::exception_ptr failure_;
  RunWindow window_;
  bool leg_open_ = false, tracing_ = false;
  StepLog* log_ = nullptr;  // of the leg under way; null while warming up

  std::vector<std::jthread> stager_threads_, feeder_threads_, replica_threads_;
};

}  // namespace penstock
