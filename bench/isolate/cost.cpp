// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/cost.h"

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// The difference of a part of step time between the feeder's runs and the ceiling's.
template <typename Part>
Estimate difference(std::span<const BlockPair> blocks, const Part& part) {
  std::vector<Pair> pairs;
  for (const BlockPair& block : blocks) pairs.push_back({part(block.ceiling), part(block.coupled)});
  return paired_difference(pairs);
}

/// 100 (1 - 1 / ratio) of a ratio of step times.
double percent_of(double ratio) {
  if (!(ratio > 0)) return -kInfinite;
  return 100 * (1 - 1 / ratio);
}

CostSplit split_of(std::span<const BlockPair> blocks) {
  CostSplit split;
  split.total_ms = difference(blocks, [](const SteadyRun& run) { return run.kept_up_ms; });
  split.starvation_ms = difference(blocks, [](const SteadyRun& run) { return run.starved_ms; });
  split.transfer_ms = difference(blocks, [](const SteadyRun& run) { return run.copy_exposed_ms; });
  split.interference_ms =
      difference(blocks, [](const SteadyRun& run) { return run.busy_ms + run.late_ms; });
  split.residual_ms = split.total_ms.value - split.starvation_ms.value - split.transfer_ms.value -
                      split.interference_ms.value;
  return split;
}

}  // namespace

std::vector<BlockPair> pair_blocks(const Row& ceiling, const Row& coupled) {
  std::vector<BlockPair> blocks;
  for (const Repetition& with : coupled.repetitions) {
    if (!is_usable(with.result)) continue;
    for (const Repetition& without : ceiling.repetitions) {
      if (without.round != with.round || !is_usable(without.result)) continue;
      const BlockPair pair{with.round, steady_state(without.result), steady_state(with.result)};
      if (pair.ceiling.kept_up_ms > 0 && pair.coupled.kept_up_ms > 0) blocks.push_back(pair);
    }
  }
  return blocks;
}

std::vector<Pair> step_pairs(std::span<const BlockPair> blocks) {
  std::vector<Pair> pairs;
  for (const BlockPair& block : blocks) {
    pairs.push_back({block.ceiling.kept_up_ms, block.coupled.kept_up_ms});
  }
  return pairs;
}

double ratio_half_width(std::span<const BlockPair> blocks) {
  if (blocks.size() < 2) return kInfinite;
  const Estimate ratio = paired_ratio(step_pairs(blocks));
  return ratio.half_width() / ratio.value;
}

Estimate rate_of(const Estimate& ms, double images) {
  const auto rate = [&](double each) { return each > 0 ? 1e3 * images / each : kInfinite; };
  return {rate(ms.value), rate(ms.high), rate(ms.low), ms.samples};
}

std::optional<InputCostFinding> find_cost(std::span<const BlockPair> blocks, double images,
                                          const CostTargets& targets) {
  if (blocks.empty()) return std::nullopt;
  const std::vector<Pair> pairs = step_pairs(blocks);
  std::vector<double> ceiling_ms, coupled_ms;
  std::vector<Pair> rates;
  for (const Pair& pair : pairs) {
    ceiling_ms.push_back(pair.a);
    coupled_ms.push_back(pair.b);
    rates.push_back({1e3 * images / pair.b, 1e3 * images / pair.a});
  }
  InputCostFinding cost;
  cost.ceiling_img_per_s = rate_of(mean_of_blocks(ceiling_ms), images);
  cost.coupled_img_per_s = rate_of(mean_of_blocks(coupled_ms), images);
  const Estimate ratio = paired_ratio(pairs);
  cost.percent = {percent_of(ratio.value), percent_of(ratio.low), percent_of(ratio.high),
                  ratio.samples};
  cost.img_per_s_lost = paired_difference(rates);
  cost.split = split_of(blocks);
  cost.verdict = judge(pairs, targets.margin);
  if (cost.verdict == Verdict::undecided) {
    cost.more_blocks = pairs.size() < 3 ? 3 - pairs.size() : more_pairs(pairs, targets.half_width);
  }
  return cost;
}

std::vector<double> supply_rates(const Row& row) {
  std::vector<double> rates;
  for (const Repetition& repetition : row.repetitions) {
    if (!is_usable(repetition.result)) continue;
    const SteadyRun run = steady_state(repetition.result);
    if (!(run.step_ms > 0)) continue;
    rates.push_back(1e3 * static_cast<double>(repetition.result.images_per_step) / run.step_ms);
  }
  return rates;
}

std::optional<Estimate> supply_of(const Row& row) {
  const double images = images_per_step(row);
  std::vector<double> ms;
  for (const double rate : supply_rates(row)) ms.push_back(1e3 * images / rate);
  if (ms.empty()) return std::nullopt;
  return rate_of(mean_of_blocks(ms), images);
}

double images_per_step(const Row& row) {
  std::int64_t images = 0;
  for (const Repetition& repetition : row.repetitions) {
    images = std::max(images, repetition.result.images_per_step);
  }
  return static_cast<double>(images);
}

}  // namespace penstock
