// SPDX-License-Identifier: Apache-2.0
// The Collective of ranks that are threads of one process, over memory that the CPU can reach.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/collective.h"

namespace penstock {

/// What the ranks share.
class ThreadsGroup final : public CollectiveGroup {
 public:
  /// One device per rank. A stop request lets every waiting rank leave with an Error.
  ThreadsGroup(std::span<Device* const> devices, Clock& clock, std::stop_token stop);
  std::unique_ptr<Collective> join(std::int32_t rank) override;

 private:
  friend class ThreadsCollective;
  struct Rank {
    std::unique_ptr<Event>
        arrived[2];  // alternating, so that a fast rank never overwrites one in use
    Tensor tensor;
  };
  /// Blocks until every rank called it. Throws Error on a stop request.
  void meet();

  Clock& clock_;
  std::stop_token stop_;
  std::vector<Rank> ranks_;
  std::mutex mutex_;
  Gate gate_;  // all below under mutex_
  std::size_t waiting_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace penstock
