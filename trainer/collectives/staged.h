// SPDX-License-Identifier: Apache-2.0
// Exchanges tensors that the CPU cannot reach: copies them to pinned memory, exchanges them there
// over all ranks, and copies them back.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainer/collective.h"

namespace penstock::collectives {

class StagedGroup final : public CollectiveGroup {
 public:
  /// `devices` belong to this process's ranks, from `first_rank` on; they outlive the group.
  /// `inner` exchanges among the same ranks, and its calls block until the exchange is done.
  StagedGroup(std::span<Device* const> devices, std::int32_t first_rank,
              std::unique_ptr<CollectiveGroup> inner);
  std::unique_ptr<Collective> join(std::int32_t rank) override;

 private:
  const std::vector<Device*> devices_;
  const std::int32_t first_rank_;
  const std::unique_ptr<CollectiveGroup> inner_;
};

}  // namespace penstock::collectives
