// SPDX-License-Identifier: Apache-2.0
// The Collective of ranks that are threads of several processes, as many in each: rank = process x
// threads + thread. A process adds inside, one of its threads exchanges with those of the other
// processes, and hands the result on inside. Sums are so of processes' sums, in the order of both.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/collective.h"

namespace penstock {

class NestedGroup final : public CollectiveGroup {
 public:
  /// `inside` is of this process's threads, one for each device, and may be null for one alone;
  /// `across` is of the processes, whose rank in it is their own, and is called by one thread at a
  /// time. All but `inside` outlive the group.
  NestedGroup(std::unique_ptr<CollectiveGroup> inside, std::span<Device* const> devices,
              Collective& across);
  std::unique_ptr<Collective> join(std::int32_t rank) override;

 private:
  const std::unique_ptr<CollectiveGroup> inside_;
  const std::vector<Device*> devices_;
  Collective& across_;
};

}  // namespace penstock
