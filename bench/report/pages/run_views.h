// SPDX-License-Identifier: Apache-2.0
// Views of single runs for pages. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bench/document/document.h"
#include "bench/record/sweep_result.h"

namespace penstock::report {

/// The run that represents its row: of the runs with steps that are ok or draining, the one with
/// the median rate. Null: there is no such run.
const Repetition* typical_run(const Row& row);

/// "round 2, whose rate is the middle one". Here and below, `round` is the page's word for a round.
std::string which_run(const Row& row, const Repetition& run, std::string_view round = "round");

/// The median step time of the typical run; none without such a run.
std::optional<double> usual_step_ms(const Row& row);

/// The steps of the typical run; `ceiling` may be null. No data without a typical run.
document::Figure step_times_of(const Row& row, const Row* ceiling,
                               std::string_view round = "round");
/// The rings in the typical run. No data if they were not recorded.
document::Figure queue_occupancy_of(const Row& row, std::string_view round = "round");

/// The memory in use in the typical run. No data if it was not recorded.
document::Figure memory_of(const Row& row, std::string_view round = "round");

/// The stages of the typical run from their counters: CPU time, waits and bytes per image. No rows
/// if they were not recorded.
document::Table stages_of(const Row& row);

/// Explains the columns of a table of stages.
std::string_view stage_terms();

/// Every repetition of every row, in collapsed sections.
document::Section repetitions_of(const SweepResult& sweep, std::string_view round = "round");

/// The environment, and the command to repeat the sweep.
document::Document surroundings_of(const SweepResult& sweep);

}  // namespace penstock::report
