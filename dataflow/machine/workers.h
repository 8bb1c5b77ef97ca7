// SPDX-License-Identifier: Apache-2.0
// Threads for a loop that shares work: TBB's, which are kept for the next call.
#pragma once

#include <cstdint>
#include <functional>

namespace penstock {

/// Runs work(0) on the calling thread and work(1) to work(count - 1) beside it, each on a thread of
/// its own even if there are fewer cores or another call's threads all wait; returns when all have
/// returned. No thread has a higher priority than the caller. `work` throws nothing. From any
/// thread, also at once. Throws std::system_error where the threads cannot be started.
void run_workers(std::int32_t count, const std::function<void(std::int32_t)>& work);

/// Throws std::system_error if `count` more threads cannot be started now. To be called before a
/// library starts some that ends the process, or waits for ever, where it cannot.
void expect_threads(std::int32_t count);

}  // namespace penstock
