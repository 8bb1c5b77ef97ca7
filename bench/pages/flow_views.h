// SPDX-License-Identifier: Apache-2.0
// What pages show of the way from source to trainer: the pipeline, supply against demand, and from
// which device rate on a feeder is the bottleneck. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/isolate/isolation.h"
#include "bench/pages/page.h"
#include "bench/sweep_result.h"

namespace penstock {

/// What a feeder supplies.
struct FeederSupply {
  std::string label;
  Estimate img_per_s;
};

/// Stages of `row` and the trainer behind them. `bottleneck`: an index of `stages`; without one the
/// trainer is the narrow place if `trainer_is_narrow`. Nothing to show without stages.
PageFigure pipeline_of(const Row& row, const std::vector<StageFinding>& stages,
                       std::optional<std::size_t> bottleneck, bool trainer_is_narrow,
                       double demand_img_per_s);

/// One bar for each feeder. `how`: where the supplies come from, a sentence.
PageFigure supply_bars_of(const std::vector<FeederSupply>& feeders, double demand_img_per_s,
                          std::string how);

/// What would be trained over what the devices could train: a feeder is the bottleneck from its own
/// supply on. `kept_up`: feeders of which it is only known that they keep up with this demand.
PageFigure bottleneck_curve_of(std::vector<FeederSupply> feeders, double demand_img_per_s,
                               const std::vector<std::string>& kept_up);

/// What the columns of a table of stages mean.
std::string_view stage_terms();

}  // namespace penstock
