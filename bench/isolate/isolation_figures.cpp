// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "bench/figures/cost_split.h"
#include "bench/figures/quantity.h"
#include "bench/figures/supply_demand.h"
#include "bench/figures/time_shares.h"
#include "bench/figures/waterfall.h"
#include "bench/pages/flow_views.h"
#include "bench/pages/run_views.h"

namespace penstock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const Row* row_at(const Isolation& isolation, std::size_t index) {
  return index < isolation.sweep.rows.size() ? &isolation.sweep.rows[index] : nullptr;
}

std::string label_at(const Isolation& isolation, std::size_t index) {
  const Row* const row = row_at(isolation, index);
  return row == nullptr ? "the feeder" : row->config.fake_location;
}

/// A step of the device alone, from its rate.
std::optional<Estimate> ceiling_ms(const Isolation& isolation) {
  const Row* const row = row_at(isolation, isolation.ceiling_row);
  const double images = row == nullptr ? 0 : images_per_step(*row);
  if (!isolation.cost || images <= 0) return std::nullopt;
  const Estimate& rate = isolation.cost->ceiling_img_per_s;
  if (!(rate.value > 0)) return std::nullopt;
  const auto ms = [images](double img_per_s) { return 1e3 * images / img_per_s; };
  return Estimate{ms(rate.value), ms(rate.high), rate.low > 0 ? ms(rate.low) : kInfinity,
                  rate.samples, rate.is_spread};
}

/// Rungs one on top of the other, from the device's own time on.
Waterfall waterfall_of_ladder(const Isolation& isolation, const Estimate& ceiling) {
  Waterfall waterfall;
  double level = ceiling.value;
  waterfall.bars.push_back({.label = "device alone", .added_ms = ceiling, .whole = true});
  for (const RungFinding& rung : isolation.ladder) {
    const Row* const row = row_at(isolation, rung.row);
    if (rung.unavailable.empty() && row != nullptr && row->is_ceiling) continue;
    const bool from_ceiling = rung.branch || waterfall.bars.size() == 1;
    WaterfallBar bar{.label = rung.branch ? rung.name + " (on its own)" : rung.name,
                     .from_ms = from_ceiling ? ceiling.value : level};
    bar.added_ms = rung.added_ms;
    const bool by_cost = rung.branch || (from_ceiling && !rung.added_ms);
    if (by_cost && rung.cost) bar.added_ms = rung.cost->split.total_ms;
    if (!rung.unavailable.empty()) bar.added_ms.reset();
    if (bar.added_ms && !rung.branch) level = bar.from_ms + bar.added_ms->value;
    waterfall.description +=
        fmt::format("{}: {}. ", bar.label,
                    bar.added_ms ? "adds " + estimate_text(*bar.added_ms, "ms") : "not measured");
    waterfall.bars.push_back(std::move(bar));
  }
  return waterfall;
}

/// From the device's own time to the time with the feeder, by what the device waited for.
Waterfall waterfall_of_split(const Isolation& isolation, const Estimate& ceiling) {
  const CostSplit& split = isolation.cost->split;
  Waterfall waterfall;
  double level = ceiling.value;
  waterfall.bars.push_back({.label = "device alone", .added_ms = ceiling, .whole = true});
  const auto add = [&](std::string_view name, const Estimate& part) {
    waterfall.bars.push_back(
        {.label = std::string(name), .from_ms = level, .added_ms = part, .classes = name});
    level += part.value;
    waterfall.description += fmt::format("{} adds {}. ", name, estimate_text(part, "ms"));
  };
  add("starvation", split.starvation_ms);
  add("transfer", split.transfer_ms);
  add("interference", split.interference_ms);
  add("residual", {split.residual_ms, -kInfinity, kInfinity, split.total_ms.samples});
  const Estimate& total = split.total_ms;
  waterfall.bars.push_back(
      {.label = "with " + label_at(isolation, isolation.coupled_row),
       .added_ms = Estimate{ceiling.value + total.value, ceiling.value + total.low,
                            ceiling.value + total.high, total.samples, total.is_spread},
       .whole = true});
  return waterfall;
}

PageFigure waterfall_of(const Isolation& isolation) {
  PageFigure figure{.file = "waterfall.svg", .heading = "From the device alone to your pipeline"};
  const std::optional<Estimate> ceiling = ceiling_ms(isolation);
  if (!ceiling) return figure;
  const bool ladder = !isolation.ladder.empty();
  Waterfall waterfall =
      ladder ? waterfall_of_ladder(isolation, *ceiling) : waterfall_of_split(isolation, *ceiling);
  figure.caption =
      ladder ? "Each rung does what the one above it does, and one thing more; green ones take "
               "less. Those on their own are compared with the device alone."
             : "What a step takes, and why.";
  figure.draw = [waterfall = std::move(waterfall)](const FigureSize& size) {
    return waterfall_figure(waterfall, size);
  };
  return figure;
}

PageFigure split_of(const Isolation& isolation) {
  PageFigure figure{.file = "split.svg", .heading = "What the cost consists of"};
  if (!isolation.cost) return figure;
  const CostSplit& split = isolation.cost->split;
  SplitBar bar{label_at(isolation, isolation.coupled_row),
               split.total_ms,
               split.starvation_ms,
               split.transfer_ms,
               split.interference_ms,
               split.residual_ms};
  figure.caption =
      "Starvation: the device had no batch. Transfer: it waited for the copy of one that was "
      "ready. "
      "Interference: steps themselves got longer, or were enqueued late. Residual: what these do "
      "not "
      "explain.";
  figure.draw = [bars = std::vector{std::move(bar)}](const FigureSize& size) {
    return cost_split_figure(bars, size);
  };
  return figure;
}

/// A look for each part, so that neighbours differ.
std::string_view looks_of(const DeliveryPart& part) {
  if (part.side == "network") return "transfer";
  if (part.side == "producer") return part.name == "made" ? "device" : "interference";
  return part.name == "in the ring" ? "residual" : "gain";
}

PageFigure delivery_of(const Isolation& isolation) {
  PageFigure figure{.file = "delivery.svg", .heading = "Producer, network, consumer"};
  if (!isolation.delivery) return figure;
  const DeliveryFinding& delivery = *isolation.delivery;
  std::vector<TimeShare> shares;
  for (const DeliveryPart& part : delivery.parts) {
    shares.push_back(
        {fmt::format("{} ({})", part.name, part.side), part.ms, std::string(looks_of(part))});
  }
  figure.caption = fmt::format(
      "What a batch went through, on average{}. A batch that waits shows what is too slow behind "
      "it, not where it lies.",
      delivery.timed ? fmt::format(", by {}", delivery.clocks) : ", as far as this process knows");
  figure.draw = [shares = std::move(shares)](const FigureSize& size) {
    return time_shares_figure("a batch", shares, size);
  };
  return figure;
}

/// Up to where the law is worth drawing.
double threads_to_draw(const Isolation& isolation) {
  constexpr double kFar = 512;
  double measured = 1;
  for (const ScalingPoint& point : isolation.supply_curve) {
    measured = std::max(measured, point.threads);
  }
  double wanted = 1.5 * measured;
  if (isolation.cores_per_device && isolation.cores_per_device->reachable) {
    wanted = std::max(wanted, 1.3 * isolation.cores_per_device->threads.value);
  } else if (isolation.law) {
    wanted = std::max(wanted, 1.3 * isolation.law->peak_threads().value_or(measured));
  }
  return std::min(wanted, std::max(kFar, measured));
}

PageFigure supply_demand_of(const Isolation& isolation) {
  constexpr int kPoints = 24;
  constexpr std::size_t kResamples = 200;
  PageFigure figure{.file = "supply-demand.svg", .heading = "How many cores would do"};
  if (isolation.supply_curve.empty()) return figure;
  SupplyDemand data;
  data.measured = isolation.supply_curve;
  data.needed = isolation.cores_per_device;
  std::int32_t devices = 1;
  if (const Row* const row = row_at(isolation, isolation.coupled_row)) {
    devices = std::max(1, row->config.num_gpus);
  }
  if (isolation.cost) data.demand_img_per_s = isolation.cost->ceiling_img_per_s.value / devices;
  const double to = threads_to_draw(isolation);
  for (int i = -1; isolation.law && i <= kPoints; ++i) {
    const double threads = i < 0 ? 0 : 1 + (to - 1) * i / kPoints;  // a straight line up to 1
    const Estimate rate =
        rate_at(isolation.supply_curve, threads, isolation.sweep.seed, kResamples);
    data.law.push_back({threads, rate});
  }
  figure.caption = fmt::format(
      "What the feeder supplies alone with more threads, with its lowest and highest block; beyond "
      "the measured points the curve is a guess. Dashed: what {} trains.",
      devices == 1 ? "the device" : "one of the devices");
  figure.draw = [data = std::move(data)](const FigureSize& size) {
    return supply_demand_figure(data, size);
  };
  return figure;
}

/// The pipeline, and what the feeder supplies against what the devices want.
void add_flow(const Isolation& isolation, IsolationFigures& figures) {
  figures.pipeline.file = "pipeline.svg";
  figures.supply.file = "supply.svg";
  figures.curve.file = "bottleneck.svg";
  const Row* const row = row_at(isolation, isolation.coupled_row);
  if (row == nullptr || !isolation.cost) return;
  const double demand = isolation.cost->ceiling_img_per_s.value;
  figures.pipeline = pipeline_of(*row, isolation.stages, isolation.bottleneck,
                                 isolation.cost->verdict == Verdict::equal, demand);
  if (!isolation.supply_img_per_s) return;
  const FeederSupply supply{label_at(isolation, isolation.coupled_row),
                            *isolation.supply_img_per_s};
  figures.supply =
      supply_bars_of({supply}, demand, "What the feeder supplies when nothing is trained.");
  figures.curve = bottleneck_curve_of({supply}, demand, {});
}

}  // namespace

IsolationFigures figures_of(const Isolation& isolation) {
  IsolationFigures figures;
  add_flow(isolation, figures);
  figures.waterfall = waterfall_of(isolation);
  figures.split = split_of(isolation);
  figures.delivery = delivery_of(isolation);
  figures.supply_demand = supply_demand_of(isolation);
  figures.steps.file = "steps.svg";
  figures.queues.file = "queues.svg";
  if (const Row* const row = row_at(isolation, isolation.coupled_row)) {
    figures.steps = step_times_of(*row, row_at(isolation, isolation.ceiling_row), "block");
    figures.queues = queue_occupancy_of(*row, "block");
  }
  figures.steps.heading = "Every step";
  figures.queues.heading = "The queues between";
  return figures;
}

}  // namespace penstock
