// SPDX-License-Identifier: Apache-2.0
// Threads for a loop that shares work: TBB's, so that all arenas of the process keep one budget.
#pragma once

#include <cstdint>
#include <functional>

namespace penstock {

/// Runs work(0) on the calling thread and work(1) to work(count - 1) beside it, on as many threads
/// even where there are fewer cores; returns when all have returned. `work` throws nothing.
void run_workers(std::int32_t count, const std::function<void(std::int32_t)>& work);

}  // namespace penstock
