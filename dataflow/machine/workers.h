// SPDX-License-Identifier: Apache-2.0
// Runs a loop on several threads. They are TBB's threads, which are kept for the next call.
#pragma once

#include <cstdint>
#include <functional>

namespace penstock {

/// Runs work(0) on the calling thread and work(1) to work(count - 1) on other threads, in parallel.
/// Each runs on a separate thread, even if there are fewer cores, or if all threads of another call
/// wait. Returns when all have returned. No thread has a higher priority than the caller. `work`
/// must throw nothing. Any thread may call it, also at the same time as others. Throws
/// std::system_error if the threads cannot be started.
void run_workers(std::int32_t count, const std::function<void(std::int32_t)>& work);

/// Throws std::system_error if `count` more threads cannot be started now. Call it before a library
/// starts threads, if the library would end the process or hang on failure.
void expect_threads(std::int32_t count);

}  // namespace penstock
