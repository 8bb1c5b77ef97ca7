// SPDX-License-Identifier: Apache-2.0
// Where processes that share memory wait for each other, with a deadline.
#pragma once

#include <atomic>
#include <cstdint>

#include "trainer/collectives/exchange_wait.h"

namespace penstock {

/// In the memory that is shared. Made once, by one process, before another uses it.
struct SharedBarrier {
  alignas(64) std::atomic<std::uint32_t> waiting{0};
  alignas(64) std::atomic<std::uint32_t> generation{0};  // how often all have met; a futex
  alignas(64) std::atomic<std::uint32_t> sleeping{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// One process's side of it.
class SharedBarrierRank {
 public:
  /// `barrier` outlives it.
  SharedBarrierRank(SharedBarrier& barrier, std::uint32_t ranks)
      : barrier_(barrier), ranks_(ranks) {}
  /// Blocks until all ranks called it: first awake, then asleep. Throws what `wait` throws, after
  /// which the barrier is of no more use to any rank.
  void meet(const ExchangeWait& wait);

 private:
  SharedBarrier& barrier_;
  const std::uint32_t ranks_;
};

}  // namespace penstock
