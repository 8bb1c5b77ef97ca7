// SPDX-License-Identifier: Apache-2.0
// Threads that do the same work until it ends: the first to return, or to throw, ends it for all.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

namespace penstock {

/// Runs `work` on the calling thread and on `threads` - 1 more, and returns once all have returned.
/// Each is given a token that asks it to stop when `stop` does, or when one of them has returned.
/// Rethrows what the first of them threw. Throws ConfigError where there is no room for so many
/// threads.
void run_together(std::int32_t threads, const std::stop_token& stop,
                  const std::function<void(const std::stop_token&)>& work);

}  // namespace penstock
