// SPDX-License-Identifier: Apache-2.0
// Work on all shards before a run: on several threads, with the errors of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace penstock {

/// Calls work(0) to work(shards - 1) on up to `threads` threads. Where some throw, rethrows what
/// the first of them in order did, so that the message is the same in each run.
void for_each_shard(std::size_t shards, std::int32_t threads,
                    const std::function<void(std::size_t)>& work);

}  // namespace penstock
