// SPDX-License-Identifier: Apache-2.0
// Views of the path from source to trainer: the pipeline, supply compared with demand, the device
// rates from which a feeder is the bottleneck, and the parts of costs. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/diagnosis.h"
#include "bench/document/document.h"
#include "bench/record/sweep_result.h"
#include "bench/report/figures/figures.h"
#include "bench/statistics/estimate.h"

namespace penstock::report {

/// "a", "a and b", "a, b and c". Needs at least one item.
std::string enumerated(std::vector<std::string> items);

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

}  // namespace penstock::report
