// SPDX-License-Identifier: Apache-2.0
// A barrier with a deadline for processes that share memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "trainer/cluster/exchange_wait.h"

namespace penstock::cluster {

/// Lies in the shared memory. One process constructs it before another uses it.
struct SharedBarrier {
  alignas(64) std::atomic<std::uint32_t> waiting{0};
  alignas(64) std::atomic<std::uint32_t> generation{0};  // number of completed meetings; a futex
  alignas(64) std::atomic<std::uint32_t> sleeping{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// One process's access to the barrier.
class SharedBarrierRank {
 public:
  /// `barrier` outlives it.
  SharedBarrierRank(SharedBarrier& barrier, std::uint32_t ranks)
      : barrier_(barrier), ranks_(ranks) {}
  /// Blocks until all ranks have called it: spins first, then sleeps. Throws the exceptions of
  /// `wait`; the barrier is then unusable for all ranks.
  void meet(const ExchangeWait& wait);

 private:
  SharedBarrier& barrier_;
  const std::uint32_t ranks_;
};

}  // namespace penstock::cluster
