// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/shard_workers.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "dataflow/machine/workers.h"

namespace penstock::datasets {

void for_each_shard(std::size_t shards, std::int32_t threads,
                    const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  std::size_t failed = shards;
  const auto wanted = static_cast<std::int32_t>(
      std::clamp<std::size_t>(shards, 1, static_cast<std::size_t>(std::max(threads, 1))));
  run_workers(wanted, [&](std::int32_t) {
    for (std::size_t shard = next++; shard < shards; shard = next++) {
      try {
        work(shard);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (shard < failed) failure = std::current_exception();
        failed = std::min(failed, shard);
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace penstock::datasets
