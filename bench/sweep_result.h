// SPDX-License-Identifier: Apache-2.0
// What a sweep found out: rows of repetitions, and the figures that are computed from them. Every
// report is a view of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/environment.h"
#include "bench/run_config.h"
#include "bench/runner.h"
#include "bench/statistics.h"
#include "bench/statistics/input_cost.h"

namespace penstock {

struct Repetition {
  std::int32_t round = 0;  ///< from 0; repetitions of one round ran under like conditions
  RunResult result;        ///< its seed is in result.config
};

/// One configuration. All members below `repetitions` follow from them: see summarise.
struct Row {
  RunConfig config;         ///< automatic values are resolved once a repetition has run
  bool is_ceiling = false;  ///< its feeder costs nothing
  std::string unavailable;  ///< why it cannot run here; empty: it can
  std::vector<Repetition> repetitions;
  /// Of a round that was measured again: kept, and in no figure.
  std::vector<Repetition> set_aside;

  Status status = Status::skipped;
  std::string reason;  ///< where the status is not ok
  std::optional<Spread> img_per_s, sustained_img_per_s;
  std::optional<CostEstimate> input_cost;  ///< what every report prints
  std::string unresolved;                  ///< why there is no input cost, where there is none
  std::vector<std::string> notes;
};

struct SweepResult {
  Environment environment;
  std::string command;  ///< that reproduces it
  std::uint64_t seed = 0;
  std::int32_t repetitions = 0;  ///< wanted of each row
  std::vector<std::vector<std::size_t>>
      rounds;  ///< rows in the order in which each round began them
  std::vector<std::string> warnings;
  std::vector<const ConfigKey*> varied;  ///< keys that tell rows apart; `fake_location` among them
  std::vector<Row> rows;
};

/// What the input costs of a sweep mean, in a sentence.
extern const char* const kInputCostDefinition;

/// Fills in what follows from the repetitions.
///
/// Status of a row, the first that applies: `skipped`, no repetition ran or could run; `failed`,
/// `partial`, all of them failed or were cut short; `draining`, one lived on batches made before
/// its window; `partial`, one failed or was cut short, and the figures are those of the others;
/// `ok`.
///
/// Input cost: with kept_up_img_per_s of each repetition, against the row of the same trainer whose
/// feeder is a ceiling, both of the same round; against all of its rounds if no round has both.
/// There is none without such a row, for rows that are neither ok nor partial, and if no repetition
/// of the two is ok.
void summarise(SweepResult& sweep);

/// The row that costs of `row` are measured against: of the same trainer, with a feeder that costs
/// nothing; where several train alike, the one whose feeder settings are the most alike too. Null:
/// there is none.
const Row* ceiling_of(const SweepResult& sweep, const Row& row);

/// The rate that the feeder can keep up: of what it published in the window, if the reserve fell by
/// more than one batch for each device; else of what was trained, as batches are on their way at
/// either end of a window.
double kept_up_img_per_s(const RunResult& result);

/// Times a step at those rates, of each round in which both rows ended well: a of the ceiling.
std::vector<Pair> paired_steps(const Row& ceiling, const Row& row);

/// Images of a step; 0: the row has no runs.
double images_per_step(const Row& row);

/// A round in which one row lies far from its other rounds.
struct OutlyingRound {
  std::int32_t round = 0;
  const Row* row = nullptr;
  double img_per_s = 0;      ///< the row's in that round
  double low = 0, high = 0;  ///< in the others
};
/// The round whose rate lies the farthest from the nearest other round of its row: more than 5 % of
/// the row's median, and more than three times what the others differ by. None: no round does, or
/// no row has three rounds.
std::optional<OutlyingRound> outlying_round(const SweepResult& sweep);

/// Did any repetition fail, or end before its time without being told to?
bool has_failures(const SweepResult& sweep);

}  // namespace penstock
