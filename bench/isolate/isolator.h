// SPDX-License-Identifier: Apache-2.0
// Measures what one feeder costs one trainer, and decides what to measure next. A pilot finds out
// how long runs take. Then blocks of fresh processes run in random order, until the interval is
// narrow enough or the budget ends. analyse() (isolation.h) says what the measurement shows.
//
// Used by one thread. Waits and measures with the given clock.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/isolate/isolation.h"
#include "bench/isolate/noise.h"
#include "bench/sweep/sweep_runner.h"

namespace penstock::isolate {

/// Receives progress, on the measuring thread. Results are of all phases so far; results of the
/// pilot do not count.
class IsolateListener : public SweepListener {
 public:
  /// "pilot", "blocks", "profile", "ladder", "settings", "verification"
  virtual void phase_begins(std::string_view /*phase*/, double /*budget_s*/) {}
  /// The pilot showed that the budget is too short; a sentence.
  virtual void budget_is_short(const std::string& /*sentence*/) {}
};

class Isolator {
 public:
  /// `run` runs one configuration and returns failures as results. `clock` must outlive this
  /// object. Throws ConfigError for a plan that cannot work.
  Isolator(IsolatePlan plan, SweepRunner::Run run, NoiseMeter meter, Clock& clock);

  /// Call it once. After a stop request, the run under way is the last one, and the results so far
  /// are analysed.
  Isolation run(IsolateListener& listener, const std::stop_token& stop);

 private:
  class Watch;
  /// Rows that are measured together, in blocks.
  struct Phase {
    std::string_view name;
    std::vector<RunConfig> configs;
    double seconds = 0;
    std::int32_t blocks = 1000;                        ///< at most
    std::function<bool(const SweepResult&)> enough{};  ///< asked after each block; null: never
    bool kept = true;                                  ///< its rows are results
  };
  const SweepResult& measure(const Phase& phase, IsolateListener& listener,
                             const std::stop_token& stop);
  /// Measures the phase and appends its rows to those of earlier phases. Returns the index of the
  /// first.
  std::size_t append(const Phase& phase, IsolateListener& listener, const std::stop_token& stop);
  /// Short runs, which are no results. Rows and times are in the order of the runs; times are zeros
  /// for runs without a rate.
  struct Pilot {
    const SweepResult& sweep;
    std::vector<PilotTime> times;
    double left_s = 0;  ///< of the budget
  };
  Pilot pilot(std::span<const PlannedRun> runs, double budget_s, IsolateListener& listener,
              const std::stop_token& stop);
  /// Adds the runs to the phase, with windows that fit into its time.
  void add_runs(Phase& phase, std::span<const PlannedRun> runs,
                std::span<const PilotTime> times) const;
  void measure_blocks(IsolateListener& listener, const std::stop_token& stop);
  bool enough(const SweepResult& sweep);
  void profile(IsolateListener& listener, const std::stop_token& stop);
  void climb(IsolateListener& listener, const std::stop_token& stop);
  void vary(IsolateListener& listener, const std::stop_token& stop);
  void verify(IsolateListener& listener, const std::stop_token& stop);

  double left_s() const;  ///< of the budget

  const IsolatePlan plan_;
  const SweepRunner::Run run_;
  const NoiseMeter meter_;
  Clock& clock_;
  Time began_{};
  std::optional<SweepRunner> runner_;  // of the phase under way
  std::vector<double> wall_s_;         // of the runs of a phase, by its rows
  double coupled_s_ = 0;               // of the last run with the feeder in a block
  double for_profile_s_ = 0;           // kept of the budget while blocks have a cost
  Measurement measured_;
};

/// Appends the rows and rounds of `more` to `all`, and summarises it again. Keeps the warnings of
/// `all`.
void append_sweep(SweepResult& all, const SweepResult& more);

}  // namespace penstock::isolate
