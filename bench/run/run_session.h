// SPDX-License-Identifier: Apache-2.0
// Runs the parts of a run: owns its threads and runs leg after leg.
//
// A leg is a number of steps without interruption. Between legs all ranks wait with idle devices,
// while rank 0 decides. A stop request from outside ends feeders, stagers and rank 0, which stops
// at the end of a step. The other ranks follow, because they get no more input. So rank 0's weights
// always belong to a whole number of steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "bench/config/due_points.h"
#include "bench/run/checkpoint_keeper.h"
#include "bench/run/evaluator.h"
#include "bench/run/leg_plan.h"
#include "bench/run/nonfinite_steps.h"
#include "bench/run/run_parts.h"
#include "bench/run/runner.h"
#include "bench/run/step_reporter.h"
#include "bench/run/window_recorder.h"
#include "dataflow/clock.h"

namespace penstock {

class RunSession {
 public:
  /// All arguments must outlive the session. `abandon` is the source of the token that `parts` was
  /// made with. `evaluator` is null if the run does not evaluate.
  RunSession(RunParts& parts, Evaluator* evaluator, RunListener& listener,
             std::stop_source& abandon);

  /// Call once. A failure during the run is in the result, not thrown.
  RunResult run(std::stop_token external);

 private:
  void start_threads();
  void run_replica(std::size_t rank);
  std::size_t next_leg(std::size_t rank);
  void pause();
  void meet_other_processes();
  void save_at_end();
  bool evaluate();
  std::int64_t position() const;
  std::int64_t steps_until_due() const;
  std::size_t decide_leg();
  std::size_t steps_to_settle();
  std::size_t begin_window();
  std::size_t begin_leg();
  void record_failure(std::exception_ptr failure);
  RunResult collect(bool stopped_from_outside);
  void set_outcome(RunResult& result, bool stopped_from_outside) const;

  RunParts& parts_;
  Evaluator* const evaluator_;
  const RunConfig& config_;
  Clock& clock_;
  RunListener& listener_;
  std::stop_source& abandon_;  // makes ranks leave at once
  std::stop_source ending_;    // requested from outside, or with abandon_
  const std::stop_callback<std::function<void()>> abandoned_;
  StepReporter reporter_;
  const DuePoints evaluation_points_;
  // Used only by rank 0's thread until that has ended.
  CheckpointKeeper keeper_;
  Time first_leg_{};  // when it began
  std::vector<EvaluationReport> evaluations_;
  bool goal_reached_ = false;
  NonfiniteSteps nonfinite_;

  std::mutex mutex_;
  Gate gate_;
  // All below under mutex_, until the threads have ended.
  std::size_t waiting_ranks_ = 0, leg_steps_ = 0;
  std::uint64_t legs_begun_ = 0;
  WindowRecorder recorder_;
  LegPlan plan_;
  bool data_ended_ = false;
  std::exception_ptr failure_;

  std::vector<std::jthread> stager_threads_, feeder_threads_, replica_threads_;
};

}  // namespace penstock
