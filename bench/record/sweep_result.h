// SPDX-License-Identifier: Apache-2.0
// The results of a sweep: rows of repetitions, and the figures computed from them. Every report is
// a view of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/record/environment.h"
#include "bench/record/run_result.h"
#include "bench/record/statistics.h"
#include "bench/statistics/input_cost.h"

namespace penstock {

struct Repetition {
  std::int32_t round = 0;  ///< from 0; repetitions of one round ran under similar conditions
  RunResult result;        ///< its seed is in result.config
};

/// One configuration. summarise computes `status` and all members below it from `repetitions`.
struct Row {
  RunConfig config;         ///< automatic values are resolved once a repetition has run
  bool is_ceiling = false;  ///< the feeder costs nothing
  std::string unavailable;  ///< why it cannot run here; empty: it can run
  std::vector<Repetition> repetitions;
  /// Repetitions of a round that was measured again: saved, but not counted in any figure.
  std::vector<Repetition> set_aside;

  Status status = Status::skipped;
  std::string reason;  ///< why the status is not ok
  std::optional<Spread> img_per_s, sustained_img_per_s;
  std::optional<statistics::CostEstimate> input_cost;  ///< the cost that every report prints
  std::string unresolved;                              ///< why there is no input cost
  std::vector<std::string> notes;
};

struct SweepResult {
  Environment environment;
  std::string command;  ///< the command that reproduces the sweep
  std::uint64_t seed = 0;
  std::int32_t repetitions = 0;  ///< planned for each row
  std::vector<std::vector<std::size_t>>
      rounds;  ///< rows in the order in which each round began them
  std::vector<std::string> warnings;
  std::vector<const ConfigKey*> varied;  ///< keys that tell rows apart, always with `fake_location`
  std::vector<Row> rows;
  /// The rates and costs of rows are those that `isolate` reports, without warm-up: see
  /// analysis::restate, which follows summarise.
  bool steady = false;
};

/// Defines the input cost of a sweep in a sentence.
extern const char* const kInputCostDefinition;

/// Computes everything that follows from the repetitions.
///
/// Status of a row, the first that applies: `skipped`, if no repetition ran or could run; `failed`
/// or `partial`, if all repetitions failed or were cut short; `draining`, if a repetition consumed
/// batches made before its window; `partial`, if a repetition failed or was cut short, and the
/// figures come from the others; `ok`.
///
/// Input cost: compares kept_up_img_per_s of each repetition with the ceiling row of the same
/// trainer in the same round; with all rounds of the ceiling if no round has both. A row has no
/// cost without such a ceiling, if the row is neither ok nor partial, or if either row has no
/// repetition that is ok.
void summarise(SweepResult& sweep);

/// The row that the cost of `row` is measured against: a row of the same trainer whose feeder costs
/// nothing. Of several, the row with the most settings in common. Null: there is none.
const Row* ceiling_of(const SweepResult& sweep, const Row& row);

/// The rate that the feeder can sustain. If the reserve fell by more than one batch per device,
/// this is the rate at which the feeder published batches in the window, or the trained rate if
/// that is lower. Otherwise it is the trained rate, because a few batches are in flight at either
/// end of a window.
double kept_up_img_per_s(const RunResult& result);
/// Batches that may have lain ready when the window began: those in rings and sockets, and those in
/// the queues of DataLoaders' workers, one loader for each device, which are not visible here.
double reserve_before(const RunResult& result);

/// Step times in ms at those rates, one pair per round in which both runs are ok. Pair::a is the
/// ceiling's.
std::vector<statistics::Pair> paired_steps(const Row& ceiling, const Row& row);

/// Images per step; 0: the row has no runs.
double images_per_step(const Row& row);

/// A round in which one row lies far from its other rounds.
struct OutlyingRound {
  std::int32_t round = 0;
  const Row* row = nullptr;
  double img_per_s = 0;      ///< the rate of the row in that round
  double low = 0, high = 0;  ///< the range of the other rounds
};
/// The round whose rate lies farthest from the nearest other round of its row: by more than 5 % of
/// the row's median, and by more than three times the range of the other rounds. None: no such
/// round, or no row has at least three.
std::optional<OutlyingRound> outlying_round(const SweepResult& sweep);

/// True if a repetition failed, or ended early without a request to stop.
bool has_failures(const SweepResult& sweep);

}  // namespace penstock
