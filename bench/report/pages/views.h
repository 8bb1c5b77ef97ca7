// SPDX-License-Identifier: Apache-2.0
// Views of single runs for pages.
//
// Views of the path from source to trainer: the pipeline, supply compared with demand, and the
// device rates from which a feeder is the bottleneck. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/analysis/diagnosis.h"
#include "bench/document/document.h"
#include "bench/record/sweep_result.h"
#include "bench/report/figures/figures.h"
#include "bench/statistics/estimate.h"

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

/// Every repetition of every row, in collapsed sections.
document::Section repetitions_of(const SweepResult& sweep, std::string_view round = "round");

/// The environment, and the command to repeat the sweep.
document::Document surroundings_of(const SweepResult& sweep);

/// The supply of a feeder.
struct FeederSupply {
  std::string label;
  statistics::Estimate img_per_s;
};

/// The stages of `row`, followed by the trainer. `bottleneck` is an index of `stages`. Without one,
/// the trainer is marked as the bottleneck if `trainer_is_narrow`. Without stages, the figure has
/// no data.
document::Figure pipeline_of(const Row& row, const std::vector<analysis::StageFinding>& stages,
                             std::optional<std::size_t> bottleneck, bool trainer_is_narrow,
                             double demand_img_per_s);

/// One bar per feeder. `how` is a sentence on the origin of the supplies.
document::Figure supply_bars_of(const std::vector<FeederSupply>& feeders, double demand_img_per_s,
                                std::string how);

/// The training rate over the device rate: a feeder is the bottleneck if the device rate exceeds
/// its supply. `kept_up` lists feeders that keep up with this demand and whose limit is unknown.
document::Figure bottleneck_curve_of(std::vector<FeederSupply> feeders, double demand_img_per_s,
                                     const std::vector<std::string>& kept_up);

/// The parts of costs, one bar each. No data without bars.
document::Figure cost_split_of(std::vector<SplitBar> bars);

/// Explains the columns of a table of stages.
std::string_view stage_terms();

}  // namespace penstock::report
