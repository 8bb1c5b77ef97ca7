// SPDX-License-Identifier: Apache-2.0
// What `penstock run` says after the table of steps: parts of a step, operations, memory.
#pragma once

#include <string>

#include "bench/record/run_result.h"

namespace penstock::report {

/// Lines for a terminal; empty for a run without steps.
std::string run_summary(const RunResult& result);

}  // namespace penstock::report
