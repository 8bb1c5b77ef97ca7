// SPDX-License-Identifier: Apache-2.0
// The exchange of tensors that the CPU cannot reach through one of tensors that it can: down into
// pinned memory, over all ranks, and up again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainer/collective.h"

namespace penstock {

class StagedGroup final : public CollectiveGroup {
 public:
  /// `devices` of this process's ranks, from `first_rank` on; they outlive the group. `inner`
  /// exchanges among the same ranks, and blocks until it has.
  StagedGroup(std::span<Device* const> devices, std::int32_t first_rank,
              std::unique_ptr<CollectiveGroup> inner);
  std::unique_ptr<Collective> join(std::int32_t rank) override;

 private:
  const std::vector<Device*> devices_;
  const std::int32_t first_rank_;
  const std::unique_ptr<CollectiveGroup> inner_;
};

}  // namespace penstock
