// SPDX-License-Identifier: Apache-2.0
// What `penstock isolate` measures: which runs make a block, and how long each may be so that
// enough blocks fit into the budget. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/isolate/cost.h"
#include "bench/isolate/isolation.h"
#include "bench/isolate/ladder_data.h"
#include "bench/isolate/message_ladder.h"
#include "dataflow/clock.h"

namespace penstock {

struct IsolatePlan {
  RunConfig config;  ///< the feeder and the trainer, resolved
  Nanoseconds budget = std::chrono::seconds(45);
  Nanoseconds ladder_budget = std::chrono::minutes(4);  ///< more, where there is a ladder
  CostTargets targets;
  bool verify = false, ladder = false;
  std::int64_t steps = 0;                 ///< of a window; 0: as the budget allows
  std::int32_t cores = 1;                 ///< usable ones
  bool has_producer = false;              ///< the feeder receives from other processes
  bool threads_matter = false;            ///< its rate depends on --feeder-threads
  LadderData data;                        ///< that the ladder's rungs read
  std::optional<MessageLadder> messages;  ///< instead, where the feeder receives
  std::string command;                    ///< for the reports
};

/// One row of a block.
struct PlannedRun {
  RunConfig config;
  Rung rung = Rung::coupled;
};

/// `config` with another feeder, or with no model behind it; batches stay as large.
RunConfig ceiling_config(RunConfig config);
RunConfig supply_config(RunConfig config);

/// The runs of a block: the ceiling, the feeder coupled to the trainer, the feeder alone; where its
/// threads matter, alone with 1, 2, 4, ... threads up to the usable cores as well.
std::vector<PlannedRun> planned_runs(const IsolatePlan& plan);

/// The first of them: enough to know how long each takes.
inline constexpr std::int64_t kPilotSteps = 4, kPilotWarmup = 1;
/// Steps before the window of all others; the window's own warm-up is found in it.
inline constexpr std::int64_t kWarmupSteps = 3;
inline constexpr std::size_t kMinBlocks = 3, kWantedBlocks = 5;

/// What a short run says about how long another one takes.
struct PilotTime {
  double step_s = 0;      ///< of one step
  double overhead_s = 0;  ///< of a run, but for its steps
  double reserve = 0;     ///< steps that lay ready before its window
};
/// Of a pilot run that took `wall_s`; zeros where it measured nothing.
PilotTime pilot_time(const RunResult& result, double wall_s);

/// Steps for each of `runs`, whose times are `times`, so that at least kMinBlocks, better
/// kWantedBlocks, blocks end within `seconds`. Ceiling and coupled runs have as many as each other:
/// 20 reserves, where they fit; runs without a trainer end sooner.
std::vector<std::int64_t> plan_steps(std::span<const PlannedRun> runs,
                                     std::span<const PilotTime> times, double seconds);

/// Batches of each device that may lie ready inside the run, in steps.
std::int64_t reserve_steps(const RunConfig& config);

}  // namespace penstock
