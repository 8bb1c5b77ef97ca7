// SPDX-License-Identifier: Apache-2.0
// What a feeder costs its trainer, from runs of both in the same blocks. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bench/isolate/isolation.h"
#include "bench/isolate/steady.h"
#include "bench/statistics/input_cost.h"

namespace penstock {

/// The ceiling and the feeder in one block.
struct BlockPair {
  std::int32_t block = 0;
  SteadyRun ceiling, coupled;
};

/// The blocks in which both rows have a usable run.
std::vector<BlockPair> pair_blocks(const Row& ceiling, const Row& coupled);

/// Their times a step, kept up: a of the ceiling, b with the feeder.
std::vector<Pair> step_pairs(std::span<const BlockPair> blocks);

/// None without blocks.
///
/// With t the time a step and a bar for the mean over blocks, all in ms a step:
///   starvation = mean(starved) - mean(starved of the ceiling), transfer likewise of exposed copies
///   interference = the same of (step less idle) plus that of late enqueueing
///   residual = total - starvation - transfer - interference
/// Below kRoundsForInterval blocks the figures are those of the middle block, with the lowest and
/// the highest (RoundSummary).
/// The residual holds what batches that lay ready hid (kept_up_ms less step_ms), and rounding.
std::optional<InputCostFinding> find_cost(std::span<const BlockPair> blocks, double images_per_step,
                                          const CostTargets& targets);

/// Half the relative width of the interval of coupled over ceiling time; infinite below two blocks.
double ratio_half_width(std::span<const BlockPair> blocks);

/// The rate of steps of `images` images whose times are `ms`: the mean of times, not of rates.
Estimate rate_of(const Estimate& ms, double images);

/// The unconsumed rate of a row, over its usable runs; none without any.
std::optional<Estimate> supply_of(const Row& row);
/// Its values, one for each usable run, in the order of blocks.
std::vector<double> supply_rates(const Row& row);

}  // namespace penstock
