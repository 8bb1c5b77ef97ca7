// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/analysis.h"

#include <algorithm>

#include "bench/isolate/cost.h"
#include "bench/isolate/delivery.h"
#include "bench/isolate/verdict.h"
#include "bench/isolate/warnings.h"

namespace penstock::isolate {
namespace {

/// Returns the rows of the coupled row's feeder without a trainer, by threads, ascending; one row
/// for each number of threads, the first in the sweep.
std::vector<const Row*> supplies_of(const Measurement& measurement) {
  const RunConfig& coupled = measurement.coupled().config;
  std::vector<const Row*> supplies;
  for (const Row& row : measurement.sweep.rows) {
    RunConfig like = supply_config(coupled);
    like.feeder_threads = row.config.feeder_threads;
    like.num_batches = row.config.num_batches;
    like.num_warmup_batches = row.config.num_warmup_batches;
    if (row.config == like && supply_of(row)) supplies.push_back(&row);
  }
  const auto threads = [](const Row* row) { return row->config.feeder_threads; };
  std::stable_sort(supplies.begin(), supplies.end(),
                   [&](const Row* a, const Row* b) { return threads(a) < threads(b); });
  const auto repeated = std::unique(supplies.begin(), supplies.end(),
                                    [&](auto* a, auto* b) { return threads(a) == threads(b); });
  supplies.erase(repeated, supplies.end());
  return supplies;
}

/// Did other processes compute on this machine in most blocks?
bool is_crowded(const std::vector<BlockNoise>& noise) {
  constexpr double kCrowdedPercent = 10;
  const auto crowded = std::count_if(noise.begin(), noise.end(), [](const BlockNoise& block) {
    return block.foreign_cpu_percent + block.steal_percent > kCrowdedPercent;
  });
  return 2 * crowded > static_cast<std::ptrdiff_t>(noise.size());
}

}  // namespace

void analyse(Isolation& found, const IsolatePlan& plan) {
  Measurement& measurement = found.measurement;
  const Row& ceiling = measurement.ceiling();
  const Row& coupled = measurement.coupled();
  const std::vector<BlockPair> blocks = pair_blocks(ceiling, coupled);
  measurement.blocks = blocks.size();
  found.cost = find_cost(blocks, images_per_step(coupled), plan.targets);
  if (measurement.supply_row) {
    found.supply_img_per_s = supply_of(measurement.sweep.rows[*measurement.supply_row]);
  }
  if (found.cost) {
    found.diagnosis = diagnose({.coupled = coupled,
                                .cost = *found.cost,
                                .has_producer = plan.has_producer,
                                .crowded = is_crowded(noise_of_blocks(measurement))});
    if (plan.has_producer) {
      found.delivery = find_delivery(coupled, found.ladder, found.diagnosis);
    }
    found.predictions = predict({.ceiling = ceiling,
                                 .coupled = coupled,
                                 .supplies = supplies_of(measurement),
                                 .cost = *found.cost,
                                 .diagnosis = found.diagnosis,
                                 .delivery = found.delivery,
                                 .margin = plan.targets.margin,
                                 .cores = plan.cores,
                                 .threads_matter = plan.threads_matter,
                                 .seed = plan.config.seed});
  }
  found.warnings = find_warnings(found, plan);
  found.verdict = verdict_of(found, plan);
}

}  // namespace penstock::isolate
