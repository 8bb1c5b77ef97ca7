// SPDX-License-Identifier: Apache-2.0
// Computes what a feeder costs its trainer, from runs of the ceiling and of the feeder in the same
// blocks. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bench/analysis/steady_run.h"
#include "bench/record/sweep_result.h"
#include "bench/statistics/estimate.h"
#include "bench/statistics/input_cost.h"
#include "bench/statistics/paired.h"

namespace penstock::analysis {

/// The marginal cost of a feeder: how much longer its steps are than the ceiling's, in ms per step.
/// The residual is defined so that starvation + transfer + interference + residual = total.
struct CostSplit {
  statistics::Estimate total_ms;
  statistics::Estimate
      starvation_ms;                 ///< the device had no batch: none was ready on the host's side
  statistics::Estimate transfer_ms;  ///< the device waited for the copy of a batch that was ready
  statistics::Estimate interference_ms;  ///< steps themselves got longer, or were enqueued late
  double residual_ms = 0;                ///< what the three do not explain
};

/// The cost of one feeder compared with the ceiling; rounds are blocks.
struct InputCostFinding : statistics::CostEstimate {
  statistics::Estimate ceiling_img_per_s, coupled_img_per_s;
  CostSplit split;
};

/// The runs of the ceiling and of the feeder in one block.
struct BlockPair {
  std::int32_t block = 0;
  SteadyRun ceiling, coupled;
};

/// Returns the blocks in which both rows have a usable run.
std::vector<BlockPair> pair_blocks(const Row& ceiling, const Row& coupled);

/// Returns the kept-up times per step (kept_up_ms): a of the ceiling, b with the feeder.
std::vector<statistics::Pair> step_pairs(std::span<const BlockPair> blocks);

/// Returns none if there are no blocks. Few blocks suffice for a verdict if more than a quarter of
/// the time of each was seen to pass in waits for batches; of three or more, 5 %.
///
/// With the mean over blocks, all in ms per step:
///   starvation = mean(starved) - mean(starved of the ceiling); transfer likewise of exposed copies
///   interference = the same difference of (step less idle), plus that of late enqueueing
///   residual = total - starvation - transfer - interference
/// Below kRoundsForInterval blocks, each figure is that of the middle block, with the lowest and
/// the highest block as its bounds (RoundSummary).
/// The residual holds rounding, and the time that batches prepared before the window hid
/// (kept_up_ms less step_ms).
std::optional<InputCostFinding> find_cost(std::span<const BlockPair> blocks, double images_per_step,
                                          const statistics::CostTargets& targets);

/// Half the relative width of the interval of coupled over ceiling time; infinite below two blocks.
double ratio_half_width(std::span<const BlockPair> blocks);

/// Converts times per step to the rate of steps of `images` images. It averages times, not rates.
statistics::Estimate rate_of(const statistics::Estimate& ms, double images);

/// Returns the unconsumed rate of a row over its usable runs; none if it has no usable run.
std::optional<statistics::Estimate> supply_of(const Row& row);
/// Returns the unconsumed rate of each usable run, in the order of blocks.
std::vector<double> supply_rates(const Row& row);

/// Gives the rows of a sweep that `isolate` measured its own figures, so that every report of the
/// sweep prints them: rate and cost beside the ceiling by find_cost, else the rate by supply_of.
/// Call after summarise.
void restate(SweepResult& sweep);

}  // namespace penstock::analysis
