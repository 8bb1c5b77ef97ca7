// SPDX-License-Identifier: Apache-2.0
// Runs work on all shards before a run, on several threads, and reports one error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace penstock::datasets {

/// Calls work(0) to work(shards - 1) on up to `threads` threads. If several calls throw, rethrows
/// the error of the lowest shard, so that the message is the same in each run.
void for_each_shard(std::size_t shards, std::int32_t threads,
                    const std::function<void(std::size_t)>& work);

}  // namespace penstock::datasets
