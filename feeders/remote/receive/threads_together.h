// SPDX-License-Identifier: Apache-2.0
// Runs the same work on several threads. The first thread that returns or throws ends all.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

namespace penstock::remote {

/// Runs `work` on the calling thread and on `threads` - 1 more, and returns when all have returned.
/// Each gets a token that asks it to stop when `stop` does, or when one of them has returned.
/// Rethrows the first exception. Throws ConfigError if the system cannot start the threads.
void run_together(std::int32_t threads, const std::stop_token& stop,
                  const std::function<void(const std::stop_token&)>& work);

}  // namespace penstock::remote
