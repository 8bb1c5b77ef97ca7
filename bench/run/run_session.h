// SPDX-License-Identifier: Apache-2.0
// Runs the parts of a run: owns its threads and runs leg after leg.
//
// A leg is a number of steps without interruption. Between legs all ranks wait with idle devices,
// while rank 0 decides. A stop request from outside ends feeders, stagers and rank 0, which stops
// at the end of a step. The other ranks follow, because they get no more input. So rank 0's weights
// always belong to a whole number of steps.
#pragma once

#include <stop_token>

#include "bench/run/evaluator.h"
#include "bench/run/run_parts.h"
#include "bench/run/runner.h"

namespace penstock {

/// Call once. A failure during the run is in the result, not thrown. `abandon` is the source of the
/// token that `parts` was made with. `evaluator` is null if the run does not evaluate. `stop` is
/// the request from outside.
RunResult run_session(RunParts& parts, Evaluator* evaluator, RunListener& listener,
                      std::stop_source& abandon, std::stop_token stop);

}  // namespace penstock
