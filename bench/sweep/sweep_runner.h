// SPDX-License-Identifier: Apache-2.0
// Runs the configurations of a sweep in rounds. Each round runs every configuration once, in a
// different order, so that drift during the sweep affects all rows alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/record/sweep_result.h"
#include "dataflow/clock.h"

namespace penstock {

struct SweepPlan {
  std::vector<RunConfig> configurations;
  std::int32_t repetitions = 3;
  /// No run begins that would probably exceed it, but each configuration runs at least once.
  Nanoseconds time_budget = std::chrono::minutes(5);
  std::uint64_t seed =
      0;                ///< of the order; repetition k runs with the configuration's own seed + k
  std::string command;  ///< for the reports
  /// Longest wait for idle processors before the first round; 0: no wait.
  Nanoseconds rest{};
  /// Processor time in use since the last call, by all processes, in per cent. Null: read from the
  /// system.
  std::function<double()> busy_percent{};
  /// Sets aside an outlying round and measures one more in its place; see outlying_round. Happens
  /// at most once, and only if the time budget allows.
  bool repeat_outlier = false;
  /// Called before and after each round. Null: nothing happens.
  std::function<void(std::int32_t round, bool ended)> on_round{};
  /// Called after each complete round; true ends the sweep. Null: all repetitions run, and a
  /// warning tells if the time budget ended first.
  std::function<bool(const SweepResult&)> enough{};
};

/// The position of a run in the sweep.
struct SweepMoment {
  const Row& row;
  std::size_t run = 0, runs = 0;  ///< from 0; runs: the largest possible number
  std::int32_t round = 0;         ///< from 0
  double elapsed_s = 0;           ///< since the sweep began
  double left_s = 0;              ///< estimated; without an estimate, the rest of the time budget
};

/// Receives progress on the thread that runs the sweep.
class SweepListener {
 public:
  virtual ~SweepListener() = default;
  /// Once a second before the first round, while the processors are busy with other work.
  virtual void rests(double /*busy_percent*/) {}
  virtual void run_begins(const SweepMoment& /*moment*/) {}
  virtual void run_ended(const SweepMoment& /*moment*/, const RunResult& /*result*/) {}
  /// The results so far: once before the first run, and after each run. If it throws before the
  /// first run, the sweep ends.
  virtual void results_changed(const SweepResult& /*sweep*/) {}
};

class SweepRunner {
 public:
  /// Runs one repetition. Returns failures as results, does not throw.
  using Run = std::function<RunResult(const RunConfig&, const std::stop_token&)>;

  /// Checks all configurations. Throws ConfigError for impossible ones. `clock` must outlive the
  /// runner.
  SweepRunner(SweepPlan plan, Run run, Clock& clock);

  /// Call once. After a stop request, the current run is the last one.
  const SweepResult& run(SweepListener& listener, const std::stop_token& stop);

 private:
  void wait_for_rest(SweepListener& listener, const std::stop_token& stop);
  void repeat_outlier(SweepListener& listener, const std::stop_token& stop);
  std::size_t set_aside(std::int32_t round);
  std::size_t set_aside_incomplete_round();
  bool round_fits() const;
  bool run_round(std::int32_t round, SweepListener& listener, const std::stop_token& stop);
  void run_row(std::size_t row, std::int32_t round, SweepListener& listener,
               const std::stop_token& stop);
  void conclude(SweepListener& listener);
  std::size_t runs() const;
  double elapsed_s() const;
  double left_s() const;

  const SweepPlan plan_;
  const Run run_;
  Clock& clock_;
  Time began_{};
  SweepResult result_;
  CpuTicks ticks_{};
  std::vector<double> run_s_;  ///< by row: duration of its longest run so far; 0: none
  std::size_t runs_done_ = 0;
};

}  // namespace penstock
