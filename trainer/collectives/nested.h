// SPDX-License-Identifier: Apache-2.0
// The Collective of ranks that are threads of several processes, with equally many threads in each:
// rank = process x threads + thread. Each process adds its threads' tensors, one thread exchanges
// the sum with the other processes, and the process distributes the result to its threads. Sums are
// therefore sums of process sums, in the order of threads and of processes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/collective.h"

namespace penstock::collectives {

class NestedGroup final : public CollectiveGroup {
 public:
  /// `inside` exchanges among the threads of this process, one per device; it may be null for one
  /// device. `across` exchanges among the processes; its rank is this process's rank, and one
  /// thread calls it at a time. All but `inside` outlive the group.
  NestedGroup(std::unique_ptr<CollectiveGroup> inside, std::span<Device* const> devices,
              Collective& across);
  std::unique_ptr<Collective> join(std::int32_t rank) override;

 private:
  const std::unique_ptr<CollectiveGroup> inside_;
  const std::vector<Device*> devices_;
  Collective& across_;
};

}  // namespace penstock::collectives
