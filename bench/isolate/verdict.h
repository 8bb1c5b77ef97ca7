// SPDX-License-Identifier: Apache-2.0
// The answer in sentences. Pure functions of what was found.
#pragma once

#include <string>
#include <vector>

#include "bench/isolate/isolate_plan.h"
#include "bench/isolate/isolation.h"

namespace penstock {

/// The first sentence is the headline; the others give its evidence. Plain text.
std::vector<std::string> verdict_of(const Isolation& found, const IsolatePlan& plan);

/// "5 blocks"; "3 of 4 blocks" if the ceiling or the feeder failed in the others.
std::string blocks_text(const Isolation& found);

/// Rungs of a ladder that have no figures, those with the same reason together: "cold files, over
/// ZeroMQ: not measured: the budget ended before their turn".
std::vector<std::string> unmeasured_rungs(const std::vector<RungFinding>& ladder);

/// The feeder of a run, without its options where those are long: "queue:crop=center",
/// "zmq-consume:...".
std::string feeder_label(const RunConfig& config);

/// What a stage does, as a sentence begins: "JPEG decoding".
std::string work_of_stage(const StageFinding& stage);

/// What a run of the sweep is for: "the ceiling", "queue with the trainer", "queue alone, 2
/// threads".
std::string name_of_run(const RunConfig& config, bool is_ceiling);

}  // namespace penstock
