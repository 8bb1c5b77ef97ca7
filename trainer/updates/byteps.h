// SPDX-License-Identifier: Apache-2.0
// BytePS's: servers only add, and each worker applies the sum itself, as replicated does.
//
// The arena of gradients is cut into partitions. Each is pushed as soon as backward has finished
// it, and its sum is pulled while others are still being pushed. What the next forward pass needs
// first, the front layers, goes first among those that wait; no more than a window of bytes is on
// its way.
//
// Unlike BytePS, partitions of small tensors are joined, and lie on the server with the fewest
// bytes so far instead of the one that a hash names.
#pragma once

#include <memory>

#include "trainer/update_strategy.h"

namespace penstock {

/// `context.servers` is there. Options: partition_bytes, credit_bytes.
std::unique_ptr<UpdateStrategy> make_byteps(const UpdateContext& context);

}  // namespace penstock
