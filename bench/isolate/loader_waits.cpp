// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/loader_waits.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/analysis/steady_run.h"
#include "bench/isolate/isolation.h"
#include "bench/record/epoch_edges.h"
#include "bench/statistics/series.h"

namespace penstock::isolate {
namespace {

/// How waits are spread and whether they grow, at steps that are at no edge of an epoch. They grow
/// if they do so in each run.
void describe(const Row& coupled, LoaderWaits& waits) {
  std::vector<double> all;
  std::vector<WaitGrowth> growths;
  const auto runs = analysis::usable_runs(coupled);
  for (const RunResult* run : runs) {
    const std::vector<double> more = without_edges(*run, run->starved_ms);
    all.insert(all.end(), more.begin(), more.end());
    if (const auto growth = growth_of_waits(more)) growths.push_back(*growth);
  }
  waits.spread = spread_of_waits(std::move(all));
  if (growths.empty() || growths.size() < runs.size()) return;
  WaitGrowth mean;
  for (const WaitGrowth& growth : growths) {
    mean.first_ms += growth.first_ms / static_cast<double>(growths.size());
    mean.last_ms += growth.last_ms / static_cast<double>(growths.size());
  }
  waits.growth = mean;
}

/// The time in which the process that asks for batches makes one, in ms per step.
double made_in_turn_ms(const Isolation& found) {
  const auto* const asks = analysis::find_stage(found.diagnosis, StageRole::asks);
  if (asks == nullptr) return 0;
  double us_per_image = 0;
  for (const analysis::StageFinding& stage : found.diagnosis.stages) {
    if (stage.workers == asks->workers) us_per_image += stage.wall_us_per_image;
  }
  return us_per_image * images_per_step(found.measurement.coupled()) / 1e3;
}

}  // namespace

std::optional<double> mean_fact(const Row& row, const std::string& name) {
  std::vector<double> values;
  for (const RunResult* run : analysis::usable_runs(row)) {
    if (const auto fact = fact_of(*run, name)) values.push_back(*fact);
  }
  if (values.empty()) return std::nullopt;
  return statistics::mean(values);
}

LoaderWaits find_waits(const Isolation& found) {
  constexpr double kMostly = 0.5, kEnough = 0.95, kAlike = 0.3;
  LoaderWaits waits;
  const Row& coupled = found.measurement.coupled();
  for (const auto& [name, member] : kLoaderSettings) {
    waits.*member =
        static_cast<std::int32_t>(mean_fact(coupled, fmt::format("loader_{}", name)).value_or(-1));
  }
  const analysis::InputCostFinding& cost = *found.cost;
  const double starved_ms = cost.split.starvation_ms.value;
  if (cost.verdict != statistics::Verdict::slower ||
      !(starved_ms > kMostly * cost.ms_per_step.value)) {
    return waits;
  }
  describe(coupled, waits);
  const std::optional<std::size_t> bottleneck = found.diagnosis.bottleneck;
  if (bottleneck && found.diagnosis.stages[*bottleneck].role == StageRole::loads) {
    waits.processor_percent = mean_fact(coupled, "samples_core_wait_percent").value_or(0);
  }
  waits.held_back_percent = mean_fact(coupled, "loader_held_back_percent").value_or(0);
  const EpochEdges& epochs = found.epochs;
  waits.steady_ms = epochs.steady_ms;
  waits.edge_longer_ms = epochs.longer_ms;
  waits.steps_per_epoch = epochs.steps_per_epoch;
  waits.made_in_turn_ms = made_in_turn_ms(found);
  const auto supplies = [&](double times, const statistics::Estimate& rate) {
    return found.supply_img_per_s && found.supply_img_per_s->value >= times * rate.value;
  };
  if (epochs.seen > 0 && epochs.steps_per_epoch > 0 &&
      epochs.longer_ms / epochs.steps_per_epoch > kMostly * starved_ms) {
    waits.cause = WaitCause::edges;
  } else if (waits.growth) {
    waits.cause = WaitCause::growing;
  } else if (supplies(1 + kAlike / 2, cost.coupled_img_per_s) &&
             std::abs(waits.made_in_turn_ms - starved_ms) < kAlike * starved_ms) {
    waits.cause = WaitCause::in_turn;
  } else if (supplies(kEnough, cost.ceiling_img_per_s) ||
             (waits.workers > 0 && !found.diagnosis.bottleneck)) {
    waits.cause = WaitCause::uneven;
  } else {
    waits.cause = WaitCause::work;
  }
  return waits;
}

}  // namespace penstock::isolate
