// SPDX-License-Identifier: Apache-2.0
// Runs the configurations of a sweep in rounds: each round runs every configuration once, in an
// order of its own, so that what drifts while the sweep runs falls on all rows alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/sweep_result.h"
#include "dataflow/clock.h"

namespace penstock {

struct SweepPlan {
  std::vector<RunConfig> configurations;
  std::int32_t repetitions = 3;
  /// No run is begun that would probably end later; each configuration is begun once in any case.
  Nanoseconds time_budget = std::chrono::minutes(5);
  std::uint64_t seed =
      0;                ///< of the order; repetition k runs with the configuration's own seed + k
  std::string command;  ///< for the reports
  /// How long to wait at most, before the first round, until nobody uses the processors; 0: not.
  Nanoseconds rest{};
  /// Of all processor time since it was last asked, used by anyone, in per cent. Null: the machine
  /// is asked.
  std::function<double()> busy_percent{};
  /// An outlying round is set aside, and one more round takes its place; see outlying_round. At
  /// most one is, if the time budget allows.
  bool repeat_outlier = false;
  /// Asked after each complete round: true ends the sweep, which knows enough. Null: all
  /// repetitions are wanted, and a warning says when the budget ends before them.
  std::function<bool(const SweepResult&)> enough{};
};

/// One run among those of a sweep.
struct SweepMoment {
  const Row& row;
  std::size_t run = 0, runs = 0;  ///< from 0; runs: as many as there will be at most
  std::int32_t round = 0;         ///< from 0
  double elapsed_s = 0;           ///< since the sweep began
  double left_s = 0;              ///< an estimate, or the rest of the budget where there is none
};

/// Told of progress by the thread that runs the sweep.
class SweepListener {
 public:
  virtual ~SweepListener() = default;
  /// Before the first round, once a second, while others use so much of the processors.
  virtual void rests(double /*busy_percent*/) {}
  virtual void round_begins(std::int32_t /*round*/) {}
  virtual void round_ended(std::int32_t /*round*/) {}
  virtual void run_begins(const SweepMoment& /*moment*/) {}
  virtual void run_ended(const SweepMoment& /*moment*/, const RunResult& /*result*/) {}
  /// What is known so far: once before the first run, and after each. May throw before the first
  /// run, which ends the sweep.
  virtual void results_changed(const SweepResult& /*sweep*/) {}
};

class SweepRunner {
 public:
  /// Runs one repetition; returns failures as results.
  using Run = std::function<RunResult(const RunConfig&, const std::stop_token&)>;

  /// Checks all configurations. Throws ConfigError for what cannot work. `clock` outlives the
  /// runner.
  SweepRunner(SweepPlan plan, Run run, Clock& clock);

  /// Runs once. After a stop request the run under way is the last one.
  const SweepResult& run(SweepListener& listener, const std::stop_token& stop);

 private:
  void wait_for_rest(SweepListener& listener, const std::stop_token& stop);
  void repeat_outlier(SweepListener& listener, const std::stop_token& stop);
  bool fits(std::size_t row) const;
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
  std::vector<double> run_s_;  ///< by row: its longest run so far; 0: none
  std::size_t runs_done_ = 0;
};

}  // namespace penstock
