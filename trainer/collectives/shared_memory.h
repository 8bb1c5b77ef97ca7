// SPDX-License-Identifier: Apache-2.0
// The exchange of ranks that are processes of one host, through memory that all of them map.
//
// Tensors pass through it in chunks that stay in the processor's caches: every rank copies its
// chunk in, adds its share of it over all ranks, in their order, and copies the sums out. A rank so
// reads its own tensor from memory once and writes it once, whatever the number of ranks; one
// meeting a chunk keeps them in step, as there is room for two chunks.
#pragma once

#include <memory>
#include <string>

#include "trainer/collectives/exchange_wait.h"

namespace penstock {

struct SharedMemory {
  std::unique_ptr<CollectiveGroup> group;  ///< null: there is none
  std::string why_not;                     ///< then: why
};

/// Called by all processes together, which find out together. The memory has no name that could be
/// left behind: it ends with the last process that maps it. `exchange`'s device and `clock` outlive
/// the group, which keeps the rest. None where processes are of several hosts, or cannot open each
/// other's memory, as in containers of their own.
SharedMemory share_memory(Processes& processes, const Processes::Exchange& exchange, Clock& clock);

}  // namespace penstock
