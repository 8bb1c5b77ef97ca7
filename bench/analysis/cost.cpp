// SPDX-License-Identifier: Apache-2.0
#include "bench/analysis/cost.h"

#include <algorithm>
#include <array>

namespace penstock::analysis {
namespace {

/// Figures of blocks, all summarised in the same way.
class Blocks {
 public:
  explicit Blocks(std::span<const BlockPair> blocks)
      : blocks_(blocks), summary_(step_pairs(blocks)) {}

  template <typename Part>
  statistics::Estimate of(const Part& part) const {
    std::vector<double> values;
    for (const BlockPair& block : blocks_) values.push_back(part(block));
    return summary_.of(values);
  }
  /// The difference of one part of step time between the feeder's runs and the ceiling's.
  template <typename Part>
  statistics::Estimate longer(const Part& part) const {
    return of([&](const BlockPair& block) { return part(block.coupled) - part(block.ceiling); });
  }

 private:
  std::span<const BlockPair> blocks_;
  statistics::RoundSummary summary_;
};

CostSplit split_of(const Blocks& blocks) {
  CostSplit split;
  split.total_ms = blocks.longer([](const SteadyRun& run) { return run.kept_up_ms; });
  split.starvation_ms = blocks.longer([](const SteadyRun& run) { return run.starved_ms; });
  split.transfer_ms = blocks.longer([](const SteadyRun& run) { return run.copy_exposed_ms; });
  split.interference_ms =
      blocks.longer([](const SteadyRun& run) { return run.busy_ms + run.late_ms; });
  split.residual_ms = split.total_ms.value - split.starvation_ms.value - split.transfer_ms.value -
                      split.interference_ms.value;
  return split;
}

/// Was much of the time of each block seen to pass in waits for batches? That is no noise between
/// two runs, and needs no further block. Of several blocks each may have waited for less, and for
/// another share of its time.
bool has_waited(std::span<const BlockPair> blocks) {
  constexpr std::array<double, 3> kMuch = {0.25, 0.1, 0.05};  // of one block, of two, of more
  constexpr double kMostly = 0.8;
  const double much = kMuch.at(std::min(blocks.size(), kMuch.size()) - 1);
  return std::ranges::all_of(blocks, [&](const BlockPair& block) {
    const auto waits = [](const SteadyRun& run) { return run.starved_ms + run.copy_exposed_ms; };
    const double longer_ms = block.coupled.kept_up_ms - block.ceiling.kept_up_ms;
    return longer_ms > much * block.coupled.kept_up_ms &&
           waits(block.coupled) - waits(block.ceiling) > kMostly * longer_ms;
  });
}

Spread spread_of(const statistics::Estimate& estimate) {
  return {estimate.value, estimate.low, estimate.high};
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

std::vector<statistics::Pair> step_pairs(std::span<const BlockPair> blocks) {
  std::vector<statistics::Pair> pairs;
  for (const BlockPair& block : blocks) {
    pairs.push_back({block.ceiling.kept_up_ms, block.coupled.kept_up_ms});
  }
  return pairs;
}

double ratio_half_width(std::span<const BlockPair> blocks) {
  if (blocks.size() < 2) return statistics::kInfinity;
  const statistics::Estimate ratio = statistics::paired_ratio(step_pairs(blocks));
  return ratio.half_width() / ratio.value;
}

statistics::Estimate rate_of(const statistics::Estimate& ms, double images) {
  const auto rate = [&](double each) {
    return each > 0 ? 1e3 * images / each : statistics::kInfinity;
  };
  return {rate(ms.value), rate(ms.high), rate(ms.low), ms.samples, ms.is_spread};
}

std::optional<InputCostFinding> find_cost(std::span<const BlockPair> blocks, double images,
                                          const statistics::CostTargets& targets) {
  if (blocks.empty()) return std::nullopt;
  const Blocks figures(blocks);
  InputCostFinding cost;
  static_cast<statistics::CostEstimate&>(cost) =
      statistics::estimate_cost(step_pairs(blocks), images, targets);
  cost.ceiling_img_per_s =
      rate_of(figures.of([](const BlockPair& block) { return block.ceiling.kept_up_ms; }), images);
  cost.coupled_img_per_s =
      rate_of(figures.of([](const BlockPair& block) { return block.coupled.kept_up_ms; }), images);
  if (!cost.percent
           .is_spread) {  // by the ratio of step times, so that it is the ceiling less the loss
    const statistics::Estimate ratio = statistics::paired_ratio(step_pairs(blocks));
    const double ceiling = cost.ceiling_img_per_s.value;
    cost.coupled_img_per_s = {ceiling / ratio.value, ceiling / ratio.high, ceiling / ratio.low,
                              ratio.samples};
  }
  cost.split = split_of(figures);
  if (cost.verdict == statistics::Verdict::undecided && targets.most_hidden == 0 &&
      has_waited(blocks)) {
    cost.verdict = statistics::Verdict::slower;
    cost.more_rounds = 0;
  }
  return cost;
}

std::vector<double> supply_rates(const Row& row) {
  std::vector<double> rates;
  for (const RunResult* run : usable_runs(row)) {
    const double step_ms = steady_state(*run).step_ms;
    if (step_ms > 0) rates.push_back(1e3 * static_cast<double>(run->images_per_step) / step_ms);
  }
  return rates;
}

std::optional<statistics::Estimate> supply_of(const Row& row) {
  const double images = images_per_step(row);
  std::vector<double> ms;
  for (const double rate : supply_rates(row)) ms.push_back(1e3 * images / rate);
  if (ms.empty()) return std::nullopt;
  return rate_of(statistics::summarise_rounds(ms), images);
}

void restate(SweepResult& sweep) {
  sweep.steady = true;
  std::vector<const Row*> paired;  // ceilings
  for (Row& row : sweep.rows) {
    const Row* const ceiling = row.is_ceiling ? nullptr : ceiling_of(sweep, row);
    std::optional<InputCostFinding> cost;
    if (ceiling != nullptr) {
      const double margin =
          row.input_cost ? row.input_cost->margin : statistics::CostTargets().margin;
      cost = find_cost(pair_blocks(*ceiling, row), images_per_step(row), {.margin = margin});
    }
    if (!cost) {
      if (const auto supply = supply_of(row); supply && !row.is_ceiling) {
        row.img_per_s = spread_of(*supply);
      }
      continue;
    }
    row.img_per_s = spread_of(cost->coupled_img_per_s);
    row.input_cost = *cost;
    row.unresolved.clear();
    // The ceiling's rate is that of the blocks with the first feeder.
    if (std::ranges::find(paired, ceiling) != paired.end()) continue;
    paired.push_back(ceiling);
    sweep.rows[static_cast<std::size_t>(ceiling - sweep.rows.data())].img_per_s =
        spread_of(cost->ceiling_img_per_s);
  }
}

}  // namespace penstock::analysis
