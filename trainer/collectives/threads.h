// SPDX-License-Identifier: Apache-2.0
// The Collective of ranks that are threads of one process, in memory that the CPU can reach. Each
// rank adds its share of the elements over all ranks' tensors, and writes the sums into all
// tensors.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/collective.h"
#include "trainer/collectives/exchange_choice.h"
#include "trainer/collectives/meeting.h"

namespace penstock::collectives {

/// The state that the ranks share.
class ThreadsGroup final : public CollectiveGroup {
 public:
  /// One device per rank. A stop request makes every waiting rank leave with an Error. Only the
  /// wire and its counter of `choice` have an effect: a 16-bit wire rounds as if tensors were sent.
  ThreadsGroup(std::span<Device* const> devices, Clock& clock, std::stop_token stop,
               ExchangeChoice choice = {});
  std::unique_ptr<Collective> join(std::int32_t rank) override;
  std::string how() const override;

 private:
  friend class ThreadsCollective;
  struct Rank {
    std::unique_ptr<Event>
        arrived[2];  // alternate, so that a fast rank never overwrites one in use
    Tensor tensor;
  };

  std::vector<Rank> ranks_;
  const ExchangeChoice choice_;
  Meeting meeting_;
};

}  // namespace penstock::collectives
