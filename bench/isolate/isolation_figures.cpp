// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bench/isolate/isolation_report.h"
#include "bench/record/report_text.h"
#include "bench/report/figures/figures.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/pages/flow_views.h"
#include "bench/report/pages/page.h"
#include "bench/report/pages/run_views.h"

namespace penstock::isolate {
namespace {

std::string feeder_of(const Isolation& isolation) {
  return feeder_label(isolation.measurement.coupled().config);
}

/// The time per step of the device alone, from its rate.
std::optional<statistics::Estimate> ceiling_ms(const Isolation& isolation) {
  const double images = images_per_step(isolation.measurement.ceiling());
  if (!isolation.cost || images <= 0) return std::nullopt;
  const statistics::Estimate& rate = isolation.cost->ceiling_img_per_s;
  if (!(rate.value > 0)) return std::nullopt;
  return analysis::rate_of(rate, images);  // it divides, so it converts both ways
}

/// Stacks the rungs on top of the device's own time.
report::Waterfall waterfall_of_ladder(const Isolation& isolation,
                                      const statistics::Estimate& ceiling) {
  report::Waterfall waterfall;
  double level = ceiling.value;
  waterfall.bars.push_back({.label = "device alone", .added_ms = ceiling, .whole = true});
  for (const RungFinding& rung : isolation.ladder) {
    if (rung.unavailable.empty() && isolation.measurement.sweep.rows[rung.row].is_ceiling) continue;
    const bool from_ceiling = rung.branch || waterfall.bars.size() == 1;
    report::WaterfallBar bar{.label = rung.branch ? rung.name + " (on its own)" : rung.name,
                             .from_ms = from_ceiling ? ceiling.value : level};
    bar.added_ms = rung.added_ms;
    const bool by_cost = rung.branch || (from_ceiling && !rung.added_ms);
    if (by_cost && rung.cost) bar.added_ms = rung.cost->split.total_ms;
    if (!rung.unavailable.empty()) bar.added_ms.reset();
    if (bar.added_ms && !rung.branch) level = bar.from_ms + bar.added_ms->value;
    waterfall.description += fmt::format(
        "{}: {}. ", bar.label,
        bar.added_ms ? "adds " + report::estimate_text(*bar.added_ms, "ms") : "not measured");
    waterfall.bars.push_back(std::move(bar));
  }
  return waterfall;
}

/// From the device's own time to the time with the feeder, split by what the device waited for.
report::Waterfall waterfall_of_split(const Isolation& isolation,
                                     const statistics::Estimate& ceiling) {
  const analysis::CostSplit& split = isolation.cost->split;
  report::Waterfall waterfall;
  double level = ceiling.value;
  waterfall.bars.push_back({.label = "device alone", .added_ms = ceiling, .whole = true});
  const auto add = [&](std::string_view name, const statistics::Estimate& part) {
    waterfall.bars.push_back(
        {.label = std::string(name), .from_ms = level, .added_ms = part, .classes = name});
    level += part.value;
    waterfall.description += fmt::format("{} adds {}. ", name, report::estimate_text(part, "ms"));
  };
  add("starvation", split.starvation_ms);
  add("transfer", split.transfer_ms);
  add("interference", split.interference_ms);
  add("residual",
      {split.residual_ms, -statistics::kInfinity, statistics::kInfinity, split.total_ms.samples});
  const statistics::Estimate& total = split.total_ms;
  waterfall.bars.push_back(
      {.label = "with " + feeder_of(isolation),
       .added_ms = statistics::Estimate{ceiling.value + total.value, ceiling.value + total.low,
                                        ceiling.value + total.high, total.samples, total.is_spread},
       .whole = true});
  return waterfall;
}

document::Figure waterfall_of(const Isolation& isolation) {
  document::Figure figure{.file = "waterfall.svg",
                          .heading = "From the device alone to your pipeline"};
  const std::optional<statistics::Estimate> ceiling = ceiling_ms(isolation);
  if (!ceiling) return figure;
  const bool ladder = !isolation.ladder.empty();
  report::Waterfall waterfall =
      ladder ? waterfall_of_ladder(isolation, *ceiling) : waterfall_of_split(isolation, *ceiling);
  figure.caption = ladder ? "Each rung does what the one above it does, and one thing more; green "
                            "ones take less. Separate rungs are compared with the device alone."
                          : "What a step takes, and why.";
  figure.draw = report::drawn<report::waterfall_figure>(std::move(waterfall));
  return figure;
}

document::Figure split_of(const Isolation& isolation) {
  if (!isolation.cost) return report::cost_split_of({});
  const analysis::CostSplit& split = isolation.cost->split;
  return report::cost_split_of({{feeder_of(isolation), split.total_ms, split.starvation_ms,
                                 split.transfer_ms, split.interference_ms, split.residual_ms}});
}

/// Gives part `i` a style, so that neighbours differ.
std::string_view look_of(const std::vector<DeliveryPart>& parts, std::size_t i) {
  const Side side = parts[i].side;
  const bool is_last = i + 1 == parts.size() || parts[i + 1].side != side;  // of its side
  if (side == Side::network) return "transfer";
  if (side == Side::producer) return is_last ? "interference" : "device";
  return is_last ? "residual" : "gain";
}

document::Figure delivery_of(const std::optional<DeliveryFinding>& found) {
  document::Figure figure{.file = "delivery.svg", .heading = "Producer, network, consumer"};
  if (!found) return figure;
  const DeliveryFinding& delivery = *found;
  std::vector<report::TimeShare> shares;
  for (std::size_t i = 0; i < delivery.parts.size(); ++i) {
    const DeliveryPart& part = delivery.parts[i];
    shares.push_back({fmt::format("{} ({})", part.name, to_string(part.side)), part.ms,
                      std::string(look_of(delivery.parts, i))});
  }
  figure.caption = fmt::format(
      "What a batch went through, on average{}. A batch waits for the stage after it: that stage "
      "is too slow.",
      delivery.timed ? fmt::format(", by {}", delivery.clocks) : ", as far as this process knows");
  figure.draw =
      report::drawn<report::time_shares_figure>(std::string("a batch"), std::move(shares));
  return figure;
}

/// The largest number of threads that the curve shows.
double threads_to_draw(const Predictions& predictions) {
  constexpr double kFar = 512;
  double measured = 1;
  for (const statistics::ScalingPoint& point : predictions.supply_curve) {
    measured = std::max(measured, point.threads);
  }
  double largest = 1.5 * measured;
  if (predictions.cores_per_device && predictions.cores_per_device->reachable) {
    largest = std::max(largest, 1.3 * predictions.cores_per_device->threads.value);
  } else if (predictions.law) {
    largest = std::max(largest, 1.3 * predictions.law->peak_threads().value_or(measured));
  }
  return std::min(largest, std::max(kFar, measured));
}

document::Figure supply_demand_of(const Isolation& isolation) {
  constexpr int kPoints = 24;
  constexpr std::size_t kResamples = 200;
  document::Figure figure{.file = "supply-demand.svg", .heading = "How many cores would do"};
  if (isolation.predictions.supply_curve.empty()) return figure;
  report::SupplyDemand data;
  data.measured = isolation.predictions.supply_curve;
  data.needed = isolation.predictions.cores_per_device;
  const std::int32_t devices = std::max(1, isolation.measurement.coupled().config.num_gpus);
  if (isolation.cost) data.demand_img_per_s = isolation.cost->ceiling_img_per_s.value / devices;
  const double to = threads_to_draw(isolation.predictions);
  for (int i = -1; isolation.predictions.law && i <= kPoints; ++i) {
    const double threads = i < 0 ? 0 : 1 + (to - 1) * i / kPoints;  // a straight line up to 1
    const statistics::Estimate rate = statistics::rate_at(
        isolation.predictions.supply_curve, threads, isolation.measurement.sweep.seed, kResamples);
    data.law.push_back({threads, rate});
  }
  figure.caption = fmt::format(
      "What the feeder supplies alone with more threads, with its lowest and highest block; beyond "
      "the measured points the curve is extrapolated. Dashed: what {} trains.",
      devices == 1 ? "the device" : "one of the devices");
  figure.draw = report::drawn<report::supply_demand_figure>(std::move(data));
  return figure;
}

/// Adds the pipeline, and what the feeder supplies against what the devices demand.
void add_flow(const Isolation& isolation, IsolationFigures& figures) {
  figures.pipeline.file = "pipeline.svg";
  figures.supply.file = "supply.svg";
  figures.curve.file = "bottleneck.svg";
  if (!isolation.cost) return;
  const double demand = isolation.cost->ceiling_img_per_s.value;
  // No stage is the bottleneck of a loader that only comes late at the edges of epochs.
  const bool at_edges = isolation.waits.cause == WaitCause::edges;
  figures.pipeline =
      report::pipeline_of(isolation.measurement.coupled(), isolation.diagnosis.stages,
                          at_edges ? std::nullopt : isolation.diagnosis.bottleneck,
                          isolation.cost->verdict == statistics::Verdict::equal, demand);
  if (!isolation.supply_img_per_s) return;
  const report::FeederSupply supply{feeder_of(isolation), *isolation.supply_img_per_s};
  figures.supply =
      report::supply_bars_of({supply}, demand, "What the feeder supplies when nothing is trained.");
  figures.curve = report::bottleneck_curve_of({supply}, demand, {});
}

}  // namespace

IsolationFigures figures_of(const Isolation& isolation) {
  IsolationFigures figures;
  add_flow(isolation, figures);
  figures.waterfall = waterfall_of(isolation);
  figures.split = split_of(isolation);
  figures.delivery = delivery_of(isolation.delivery);
  figures.supply_demand = supply_demand_of(isolation);
  const Row& coupled = isolation.measurement.coupled();
  figures.steps = report::step_times_of(coupled, &isolation.measurement.ceiling(), "block");
  figures.queues = report::queue_occupancy_of(coupled, "block");
  figures.steps.heading = "Every step";
  figures.queues.heading = "The queues between";
  return figures;
}

void write_isolation_figures(const Isolation& isolation, const std::filesystem::path& folder) {
  IsolationFigures figures = figures_of(isolation);
  report::write_figure_files(
      {std::move(figures.pipeline), std::move(figures.supply), std::move(figures.curve),
       std::move(figures.waterfall), std::move(figures.split), std::move(figures.delivery),
       std::move(figures.supply_demand), std::move(figures.steps), std::move(figures.queues)},
      folder);
}

}  // namespace penstock::isolate
