// SPDX-License-Identifier: Apache-2.0
// Measures what one feeder costs one trainer: a pilot that says how long runs take, then blocks of
// fresh processes in random order, until the interval is narrow enough or the budget ends.
//
// Used by one thread. Waits and measures through the clock that it is given.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/isolate/analysis.h"
#include "bench/isolate/noise.h"
#include "bench/sweep_runner.h"

namespace penstock {

/// Told of progress by the thread that measures. Results are those of all phases so far; those of
/// the pilot count for nothing.
class IsolateListener : public SweepListener {
 public:
  /// "pilot", "blocks", "verification", "ladder"
  virtual void phase_begins(std::string_view /*phase*/, double /*budget_s*/) {}
};

class Isolator {
 public:
  /// `run` runs one configuration and returns failures as results; `clock` outlives this. Throws
  /// ConfigError for what cannot work.
  Isolator(IsolatePlan plan, SweepRunner::Run run, NoiseMeter meter, Clock& clock);

  /// Runs once. After a stop request the run under way is the last one, and what there is is
  /// analysed.
  const Isolation& run(IsolateListener& listener, const std::stop_token& stop);

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
  /// The same, and its rows come behind those of earlier phases; returns the index of the first.
  std::size_t append(const Phase& phase, IsolateListener& listener, const std::stop_token& stop);
  /// Short runs, which count for nothing: the sweep of them, in the order of `runs`.
  const SweepResult& pilot(std::span<const PlannedRun> runs, double budget_s,
                           IsolateListener& listener, const std::stop_token& stop);
  std::vector<PilotTime> times_of(const SweepResult& pilot) const;
  void measure_blocks(IsolateListener& listener, const std::stop_token& stop);
  bool enough(const SweepResult& sweep);
  void climb(IsolateListener& listener, const std::stop_token& stop);
  void verify(const std::vector<Cure>& cures, IsolateListener& listener,
              const std::stop_token& stop);

  const IsolatePlan plan_;
  const SweepRunner::Run run_;
  const NoiseMeter meter_;
  Clock& clock_;
  std::optional<SweepRunner> runner_;  // of the phase under way
  std::vector<double> wall_s_;         // of the runs of a pilot, by its rows
  Isolation found_;
};

/// Puts the rows and rounds of `more` behind those of `all`, and summarises it anew. Warnings are
/// those of the first.
void append_sweep(SweepResult& all, const SweepResult& more);

}  // namespace penstock
