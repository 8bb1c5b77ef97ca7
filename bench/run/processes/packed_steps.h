// SPDX-License-Identifier: Apache-2.0
// The steps of the ranks of a process, as bytes that it sends to rank 0.
#pragma once

#include <string>
#include <string_view>

#include "bench/record/run_result.h"

namespace penstock {

/// The steps of a process as bytes, for join_steps in the same build of the program.
std::string pack_steps(const RankSteps& steps);
/// Appends the ranks of another process to `all`; the first call fills it. Times of a process on
/// another machine, whose clock differs, are shifted so that its legs begin with those of the first
/// process: processes meet before each leg. Throws DataError for bytes that are cut off.
void join_steps(RankSteps& all, std::string_view bytes);

}  // namespace penstock
