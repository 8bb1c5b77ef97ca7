// SPDX-License-Identifier: Apache-2.0
// What pages show of single runs.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/pages/page.h"
#include "bench/sweep_result.h"

namespace penstock {

/// The run that stands for its row: of those that ended well, the one with the middle rate. Null:
/// none ended well.
const Repetition* typical_run(const Row& row);

/// "round 2, whose rate is the middle one". Here and below, `round` is what the page calls a round.
std::string which_run(const Row& row, const Repetition& run, std::string_view round = "round");

/// The time of a step of this row in the middle of its runs; none without any.
std::optional<double> usual_step_ms(const Row& row);

/// Steps of the typical run; `ceiling` may be null. Nothing to show where no run ended well.
PageFigure step_times_of(const Row& row, const Row* ceiling, std::string_view round = "round");
/// Rings in the typical run; nothing to show where they were not recorded.
PageFigure queue_occupancy_of(const Row& row, std::string_view round = "round");

/// Stages of the typical run, by their own counters: CPU time, waits and bytes per image. Empty
/// rows where they were not recorded.
PageTable stages_of(const Row& row);

/// Every repetition of every row, folded.
void write_repetitions(const SweepResult& sweep, std::ostream& out,
                       std::string_view round = "round");

/// Where it ran, and the command that repeats it.
void write_surroundings(const SweepResult& sweep, std::ostream& out);

}  // namespace penstock
