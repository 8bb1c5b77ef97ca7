// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/flow_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "bench/record/report_text.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/pages/run_views.h"
#include "dataflow/entry.h"

namespace penstock::report {
namespace {

std::string counted(std::int32_t count, std::string noun) {
  if (noun.ends_with('s')) noun.pop_back();
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// "2 decode threads"; without a number for a stage outside the run.
std::string workers_of(const analysis::StageFinding& stage) {
  return stage.threads > 0 ? counted(stage.threads, stage.workers) : stage.workers;
}

/// The curve of the training rate over device rates up to `to`, limited by the feeder's supply.
Curve curve_of(const FeederSupply& feeder, CurveLook look, double to) {
  const statistics::Estimate& supply = feeder.img_per_s;
  Curve curve;
  curve.name = fmt::format("{}: up to {}", feeder.label, quantity_text(supply.value, "img/s", 4));
  curve.look = look;
  const double start = 1e-6 * to, knee = supply.value;
  curve.points = {{start, start}, {knee, knee, supply.low, supply.high}, {to, knee}};
  return curve;
}

}  // namespace

std::string enumerated(std::vector<std::string> items) {
  const std::string last = std::move(items.back());
  items.pop_back();
  return items.empty() ? last : fmt::format("{} and {}", join(items), last);
}

document::Figure pipeline_of(const Row& row, const std::vector<analysis::StageFinding>& stages,
                             std::optional<std::size_t> bottleneck, bool trainer_is_narrow,
                             double demand_img_per_s) {
  document::Figure figure{.file = "pipeline.svg"};
  if (stages.empty()) return figure;
  const Repetition* const run = typical_run(row);
  const RunResult* const result = run == nullptr ? nullptr : &run->result;
  std::vector<PipelineStage> boxes;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const analysis::StageFinding& stage = stages[i];
    boxes.push_back({stage.name, workers_of(stage),
                     fmt::format("busy {} %", fixed_text(stage.utilisation_percent, 0)),
                     stage.capacity_img_per_s, bottleneck == i});
  }
  boxes.push_back({.name = "train",
                   .workers = counted(std::max(1, row.config.num_gpus), "device"),
                   .img_per_s = demand_img_per_s,
                   .narrow = trainer_is_narrow && !bottleneck});
  if (result != nullptr && !result->step_ms.empty()) {
    boxes.back().use = fmt::format("busy {} %", fixed_text(100 - result->device_idle_percent, 0));
  }
  figure.caption = fmt::format(
      "{}, from source to device. On each arrow: what the stage before it could do if its threads "
      "did nothing else (\"?\": too little was seen of it); arrows are as thick as that, up to "
      "twice the demand. Busy: the share of its threads' time that a stage takes, waits for a "
      "processor or for storage included; 100 % is all of them, all the time.",
      feeder_label(row.config));
  figure.draw = drawn<pipeline_figure>(std::move(boxes), demand_img_per_s);
  return figure;
}

document::Figure supply_bars_of(const std::vector<FeederSupply>& feeders, double demand_img_per_s,
                                std::string how) {
  document::Figure figure{.file = "supply.svg", .heading = "Supply against demand"};
  if (feeders.empty() || !(demand_img_per_s > 0)) return figure;
  std::vector<SupplyBar> bars;
  for (const FeederSupply& feeder : feeders) {
    bars.push_back({feeder.label, feeder.img_per_s, demand_img_per_s});
  }
  figure.caption = std::move(how);
  figure.draw = drawn<supply_bars_figure>(std::move(bars));
  return figure;
}

document::Figure bottleneck_curve_of(std::vector<FeederSupply> feeders, double demand_img_per_s,
                                     const std::vector<std::string>& kept_up) {
  constexpr std::array kLooks = {CurveLook::first, CurveLook::second, CurveLook::third,
                                 CurveLook::fourth};
  document::Figure figure{.file = "bottleneck.svg",
                          .heading = "From which device rate on is the feeder the bottleneck?"};
  std::erase_if(feeders, [](const FeederSupply& feeder) {
    return !std::isfinite(feeder.img_per_s.value) || !(feeder.img_per_s.value > 0);
  });
  if (feeders.size() > kLooks.size()) feeders.resize(kLooks.size());
  if (feeders.empty() || !(demand_img_per_s > 0)) return figure;
  double to = demand_img_per_s;
  for (const FeederSupply& feeder : feeders) to = std::max(to, feeder.img_per_s.value);
  to *= 1.25;
  const double start = 1e-6 * to;
  ScalingCurves data;
  data.title = "Images trained, over what the devices could train";
  data.ranks_title = "img/s that the devices could train";
  data.value_title = "img/s trained";
  data.curves.push_back({.name = "a feeder without cost",
                         .look = CurveLook::ideal,
                         .points = {{start, start}, {to, to}}});
  for (std::size_t i = 0; i < feeders.size(); ++i) {
    data.curves.push_back(curve_of(feeders[i], kLooks[i], to));
    const statistics::Estimate& supply = feeders[i].img_per_s;
    const std::string ends = interval_text(supply, 0);
    figure.caption +=
        fmt::format("{}{} is the bottleneck of devices that train more than {} img/s {}.",
                    i == 0 ? "" : " ", feeders[i].label, fixed_text(supply.value, 0), ends);
  }
  data.curves.push_back(
      {.name = fmt::format("these devices: {} img/s", fixed_text(demand_img_per_s, 0)),
       .look = CurveLook::fifth,
       .points = {{demand_img_per_s, 0}, {demand_img_per_s, demand_img_per_s}}});
  data.description = figure.caption;
  if (!kept_up.empty()) {
    figure.caption +=
        fmt::format(" {} keep{} up with these devices; a larger number was not measured.",
                    enumerated(kept_up), kept_up.size() == 1 ? "s" : "");
  }
  figure.draw = drawn<scaling_curves_figure>(std::move(data));
  return figure;
}

document::Figure cost_split_of(std::vector<SplitBar> bars) {
  document::Figure figure{.file = "split.svg", .heading = "What the cost consists of"};
  if (bars.empty()) return figure;
  figure.caption =
      "Starvation: the device had no batch. Transfer: it waited for the copy of one that was "
      "ready. Interference: steps themselves got longer, or were enqueued late. Residual: what "
      "these do not explain.";
  figure.draw = drawn<cost_split_figure>(std::move(bars));
  return figure;
}

}  // namespace penstock::report
