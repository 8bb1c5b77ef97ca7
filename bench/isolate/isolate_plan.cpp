// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolate_plan.h"

#include <algorithm>
#include <cmath>

#include "bench/config/training_loop.h"
#include "bench/record/statistics.h"

namespace penstock::isolate {
namespace {

/// Runs without a trainer take this share of the time of a run with one.
constexpr double kSupplyShare = 0.4;
/// Windows are no longer than this, unless reserves need it: more blocks are worth more.
constexpr double kLongWindow_s = 1.5;
/// A run with fewer steps is useless.
constexpr std::int64_t kLeastSteps = 12;
/// Runs vary, so plans use only this share of the time.
constexpr double kUsedShare = 0.8;

bool is_supply(const PlannedRun& run) { return run.rung == Rung::supply; }

/// In steps. Only the pilot sees what lies in sockets.
std::int64_t reserve_of(const PlannedRun& run, const PilotTime& time) {
  return std::max(reserve_steps(run.config), static_cast<std::int64_t>(std::ceil(time.reserve)));
}

/// A window in which a steady state can be seen: what lay ready outside the rings, as in the queue
/// of a DataLoader's workers, is left out.
std::int64_t least_steps(std::span<const PlannedRun> runs, std::span<const PilotTime> times) {
  constexpr std::int64_t kMost = 16;  // longer windows would not fit into any budget
  std::int64_t outside = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    outside = std::max(outside, reserve_of(runs[i], times[i]) - reserve_steps(runs[i].config));
  }
  return kLeastSteps + 2 * std::min(outside, kMost);
}

/// Steps of each run if the runs with a trainer have `steps`.
std::vector<std::int64_t> steps_for(std::span<const PlannedRun> runs,
                                    std::span<const PilotTime> times, std::int64_t steps) {
  double longest_s = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!is_supply(runs[i])) longest_s = std::max(longest_s, times[i].step_s);
  }
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!is_supply(runs[i]) || !(times[i].step_s > 0)) {
      result.push_back(steps);
      continue;
    }
    const double share = kSupplyShare * longest_s / times[i].step_s;
    const std::int64_t least = std::min(steps, reserve_of(runs[i], times[i]) + kLeastSteps);
    result.push_back(
        std::clamp(static_cast<std::int64_t>(std::llround(share * static_cast<double>(steps))),
                   least, 4 * steps));
  }
  return result;
}

double block_s(std::span<const PilotTime> times, std::span<const std::int64_t> steps) {
  double sum = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    sum += times[i].overhead_s + times[i].step_s * static_cast<double>(steps[i] + kWarmupSteps);
  }
  return sum;
}

/// The steps of a window in which an epoch of the loader ends; 0: no loader, or not known.
std::int64_t steps_to_edge(std::span<const PilotTime> times) {
  double longest = 0;
  for (const PilotTime& time : times) longest = std::max(longest, time.steps_per_epoch);
  constexpr std::int64_t kAfter = 3;  // the first step of the next epoch, and two more
  return longest > 0 ? std::llround(longest) - kWarmupSteps + kAfter : 0;
}

/// The most steps for a block of at most `seconds`; at least least_steps().
std::int64_t most_steps(std::span<const PlannedRun> runs, std::span<const PilotTime> times,
                        double seconds) {
  std::int64_t low = least_steps(runs, times), high = 1 << 20;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (block_s(times, steps_for(runs, times, middle)) <= seconds) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

RunConfig supply_config(RunConfig config) {
  config.model = "null";
  return config;
}

std::vector<PlannedRun> planned_runs(const IsolatePlan& plan) {
  std::vector<PlannedRun> runs = {{plan.config, Rung::ceiling},
                                  {plan.config, Rung::coupled},
                                  {supply_config(plan.config), Rung::supply}};
  runs.front().config.fake_location = "gpu";
  if (parse_loop(plan.config.loop).ahead.value_or(0) > 0) {
    RunConfig config = plan.config;
    config.loop = "sync";
    config.device_slots = 1;
    runs.push_back({std::move(config), Rung::waiting});
  }
  if (!plan.threads_matter) return runs;
  std::vector<std::int32_t> counts{plan.cores};
  for (std::int32_t threads = 1; threads < plan.cores; threads *= 2) counts.push_back(threads);
  std::sort(counts.begin(), counts.end());
  for (const std::int32_t threads : counts) {
    if (threads == plan.config.feeder_threads) continue;
    RunConfig config = supply_config(plan.config);
    config.feeder_threads = threads;
    runs.push_back({std::move(config), Rung::supply});
  }
  return runs;
}

PilotTime pilot_time(const RunResult& result, double wall_s) {
  if (!(result.img_per_s > 0)) return {};
  const double slower = result.sustained_img_per_s > 0
                            ? std::min(result.sustained_img_per_s, result.img_per_s)
                            : result.img_per_s;
  PilotTime time;
  time.step_s = static_cast<double>(result.images_per_step) / slower;
  const double seen_s = static_cast<double>(result.images_per_step) / result.img_per_s *
                        static_cast<double>(kPilotSteps + kPilotWarmup);
  time.overhead_s = std::max(0.0, wall_s - seen_s);
  time.reserve = reserve_before(result) / std::max(1, result.config.num_gpus);
  time.steps_per_epoch = fact_of(result, "loader_steps_per_epoch").value_or(0);
  return time;
}

double shortest_block_s(std::span<const PlannedRun> runs, std::span<const PilotTime> times) {
  return block_s(times, steps_for(runs, times, least_steps(runs, times))) / kUsedShare;
}

std::int64_t reserve_steps(const RunConfig& config) {
  const std::int64_t batches =
      config.prefetch + std::int64_t{config.device_slots} * config.num_gpus;
  return (batches + config.num_gpus - 1) / config.num_gpus;
}

std::vector<std::int64_t> plan_steps(std::span<const PlannedRun> runs,
                                     std::span<const PilotTime> times, double seconds) {
  const double usable_s = kUsedShare * seconds;
  double slowest_s = 0;
  std::int64_t reserve = 1;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!is_supply(runs[i])) slowest_s = std::max(slowest_s, times[i].step_s);
    reserve = std::max(reserve, reserve_of(runs[i], times[i]));
  }
  const auto reserves = static_cast<std::int64_t>(kMinReserves) * reserve + 1;
  const auto long_window = slowest_s > 0 ? std::llround(kLongWindow_s / slowest_s) : 0;
  const std::int64_t target = std::max<std::int64_t>(reserves, long_window);
  std::int64_t steps = most_steps(runs, times, usable_s / static_cast<double>(kTargetBlocks));
  if (steps < reserves) {
    const std::int64_t fewer_blocks =
        most_steps(runs, times, usable_s / static_cast<double>(kMinBlocks));
    steps = std::min(fewer_blocks, reserves);
  }
  steps = std::min(steps, target);
  const std::int64_t to_edge = steps_to_edge(times);
  const double least_s = usable_s / static_cast<double>(kMinBlocks);
  if (to_edge > steps && block_s(times, steps_for(runs, times, to_edge)) <= least_s) {
    steps = to_edge;
  }
  return steps_for(runs, times, steps);
}

}  // namespace penstock::isolate
