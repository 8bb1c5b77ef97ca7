// SPDX-License-Identifier: Apache-2.0
// The exchange of ranks that are processes of one host, through memory that all of them map.
//
// Tensors pass through the memory in chunks that stay in the processor's caches. Every rank copies
// its chunk in, adds its share of the chunk over all ranks in rank order, and copies the sums out.
// A rank therefore reads its tensor from memory once and writes it once, for any number of ranks.
// There is room for two chunks, so one meeting per chunk keeps the ranks in step.
#pragma once

#include <memory>

#include "trainer/cluster/exchange_wait.h"

namespace penstock::cluster {

/// Called by all processes together; all get the same answer. The memory has no name, so none can
/// be left behind: it ends with the last process that maps it. The device of `exchange` and `clock`
/// outlive the group, which copies the rest. Returns null if another method is chosen, or if the
/// choice is `fastest` and processes are on several hosts or cannot open each other's memory, for
/// example in separate containers. Throws Unavailable if that is so and shared memory is chosen.
std::unique_ptr<CollectiveGroup> share_memory(Processes& processes,
                                              const Processes::Exchange& exchange, Clock& clock);

}  // namespace penstock::cluster
