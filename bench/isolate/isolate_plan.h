// SPDX-License-Identifier: Apache-2.0
// Plans the runs of `penstock isolate`: which runs make a block, and how long each may take so that
// enough blocks fit into the budget. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/isolate/ladder.h"
#include "bench/isolate/message_ladder.h"
#include "bench/isolate/variation.h"
#include "dataflow/clock.h"

namespace penstock::isolate {

struct IsolatePlan {
  RunConfig config;                                     ///< the feeder and the trainer, resolved
  Nanoseconds budget = std::chrono::seconds(90);        ///< for blocks and a profile
  Nanoseconds spent{};                                  ///< of the budget, before the first run
  Nanoseconds ladder_budget = std::chrono::minutes(4);  ///< in addition, if there is a ladder
  statistics::CostTargets targets;
  Nanoseconds vary_budget = std::chrono::minutes(4);  ///< in addition, if there are settings
  bool verify = false, ladder = false;
  std::vector<Setting> settings;          ///< to try; the first is the present one
  std::int64_t steps = 0;                 ///< of a window; 0: as many as the budget allows
  std::int32_t cores = 1;                 ///< usable cores
  bool has_producer = false;              ///< the feeder receives from other processes
  bool threads_matter = false;            ///< the feeder's rate depends on --feeder-threads
  bool has_loader = false;                ///< the feeder runs a loader of the user's
  LadderData data;                        ///< the data set that the ladder's rungs read
  std::optional<MessageLadder> messages;  ///< used instead of `data` if the feeder receives
  std::string command;                    ///< printed in reports
};

/// What a row of the sweep is measured for. `waiting`: the feeder is a loader, in a loop that waits
/// for each step.
enum class Rung : unsigned char { ceiling, coupled, supply, waiting, step };

/// One run of a block; it becomes one row of the sweep.
struct PlannedRun {
  RunConfig config;
  Rung rung = Rung::coupled;
};

/// `config` without a model; the batch size stays the same.
RunConfig supply_config(RunConfig config);

/// The runs of a block: the ceiling, the feeder coupled to the trainer, and the feeder alone. If
/// the feeder is a loader in a loop that runs ahead, also with one that waits for each step. If
/// threads matter, also the feeder alone with 1, 2, 4, ... threads up to the usable cores.
std::vector<PlannedRun> planned_runs(const IsolatePlan& plan);

/// Length of the pilot runs, which measure how long each run takes.
inline constexpr std::int64_t kPilotSteps = 4, kPilotWarmup = 1;
/// Steps before the window of all other runs. The warm-up inside the window is found later.
inline constexpr std::int64_t kWarmupSteps = 3;
inline constexpr std::size_t kMinBlocks = 3, kTargetBlocks = 5;

/// What a pilot run says about the duration of a longer run.
struct PilotTime {
  double step_s = 0;           ///< one step
  double overhead_s = 0;       ///< the run without its steps
  double reserve = 0;          ///< steps whose batches were ready before the window
  double steps_per_epoch = 0;  ///< of a loader; 0: not known
};
/// From a pilot run that took `wall_s`; zeros if it measured nothing.
PilotTime pilot_time(const RunResult& result, double wall_s);

/// Returns the steps of each of `runs`, given their pilot `times`. At least kMinBlocks and if
/// possible kTargetBlocks blocks then fit into `seconds`. Ceiling and coupled runs have the same
/// number of steps: 20 reserves, if they fit; more if a loader's epoch then ends in the window.
/// Runs without a trainer end sooner.
std::vector<std::int64_t> plan_steps(std::span<const PlannedRun> runs,
                                     std::span<const PilotTime> times, double seconds);

/// How long a block with the shortest windows takes, with room for runs that take longer.
double shortest_block_s(std::span<const PlannedRun> runs, std::span<const PilotTime> times);

/// Batches per device that may lie ready inside the run, in steps.
std::int64_t reserve_steps(const RunConfig& config);

}  // namespace penstock::isolate
