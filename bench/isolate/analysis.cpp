// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/analysis.h"

#include <algorithm>

#include "bench/isolate/cost.h"
#include "bench/isolate/delivery.h"
#include "bench/isolate/doubts.h"
#include "bench/isolate/verdict.h"

namespace penstock {
namespace {

/// Rows of the coupled row's feeder without a trainer, by threads, ascending; the first of those
/// with as many.
std::vector<const Row*> supplies_of(const Isolation& found) {
  const RunConfig& coupled = found.sweep.rows[found.coupled_row].config;
  std::vector<const Row*> supplies;
  for (const Row& row : found.sweep.rows) {
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

/// Did others compute on this machine in most blocks?
bool is_crowded(const std::vector<BlockNoise>& noise) {
  constexpr double kCrowdedPercent = 10;
  const auto crowded = std::count_if(noise.begin(), noise.end(), [](const BlockNoise& block) {
    return block.foreign_cpu_percent + block.steal_percent > kCrowdedPercent;
  });
  return 2 * crowded > static_cast<std::ptrdiff_t>(noise.size());
}

void take(Outlook& outlook, Isolation& found) {
  found.supply_curve = std::move(outlook.supply_curve);
  found.law = outlook.law;
  found.cores_per_device = outlook.cores_per_device;
  found.depths = std::move(outlook.depths);
  found.cures.clear();
  for (const Cure& cure : outlook.cures) found.cures.push_back(cure.text);
}

void take(Diagnosis& diagnosis, Isolation& found) {
  found.stages = std::move(diagnosis.stages);
  found.bottleneck = diagnosis.bottleneck;
  found.next_bottleneck = diagnosis.next_bottleneck;
  found.gain_until_next = diagnosis.gain_until_next;
  found.instrumentation_percent = diagnosis.instrumentation_percent;
}

}  // namespace

std::vector<Cure> analyse(Isolation& found, const IsolatePlan& plan) {
  const Row& ceiling = found.sweep.rows[found.ceiling_row];
  const Row& coupled = found.sweep.rows[found.coupled_row];
  const std::vector<BlockPair> blocks = pair_blocks(ceiling, coupled);
  found.blocks = blocks.size();
  found.cost = find_cost(blocks, images_per_step(coupled), plan.targets);
  if (found.supply_row) found.supply_img_per_s = supply_of(found.sweep.rows[*found.supply_row]);
  std::vector<Cure> cures;
  double unexplained_share = 0;
  if (found.cost) {
    Diagnosis diagnosis = diagnose({.coupled = coupled,
                                    .cost = *found.cost,
                                    .has_producer = plan.has_producer,
                                    .crowded = is_crowded(noise_of_blocks(found))});
    if (plan.has_producer) {
      found.delivery = find_delivery(coupled, found.ladder, diagnosis);
    }
    Outlook outlook = look_ahead({.ceiling = ceiling,
                                  .coupled = coupled,
                                  .supplies = supplies_of(found),
                                  .cost = *found.cost,
                                  .diagnosis = diagnosis,
                                  .delivery = found.delivery,
                                  .margin = plan.targets.margin,
                                  .cores = plan.cores,
                                  .threads_matter = plan.threads_matter,
                                  .seed = plan.config.seed});
    unexplained_share = outlook.unexplained_share;
    cures = outlook.cures;
    take(outlook, found);
    take(diagnosis, found);
  }
  found.doubts = find_doubts(found, plan, unexplained_share);
  found.verdict = verdict_of(found, plan);
  return cures;
}

}  // namespace penstock
