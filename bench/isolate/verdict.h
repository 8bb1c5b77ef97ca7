// SPDX-License-Identifier: Apache-2.0
// Writes the verdict in sentences. Pure functions of the findings.
#pragma once

#include <string>
#include <vector>

#include "bench/isolate/isolate_plan.h"
#include "bench/isolate/isolation.h"

namespace penstock::isolate {

/// Returns the headline first, then the sentences with its evidence. Plain text.
std::vector<std::string> verdict_of(const Isolation& found, const IsolatePlan& plan);

/// "5 blocks"; "3 of 4 blocks" if the ceiling or the feeder failed in the others.
std::string blocks_text(const Isolation& found);

/// Lists the rungs of a ladder without figures, grouped by reason: "cold files, over ZeroMQ: not
/// measured: the budget ended before their turn".
std::vector<std::string> unmeasured_rungs(const std::vector<RungFinding>& ladder);

/// The purpose of a run in the sweep: "the ceiling", "queue with the trainer", "queue alone, 2
/// threads".
std::string name_of_run(const RunConfig& config, bool is_ceiling);

}  // namespace penstock::isolate
