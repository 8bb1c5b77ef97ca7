// SPDX-License-Identifier: Apache-2.0
// The update of BytePS: servers only add, and each worker applies the sum itself, as `replicated`
// does.
//
// The arena of gradients is divided into partitions. Each is pushed as soon as backward has
// finished it, and its sum is pulled while others are still being pushed. Waiting partitions are
// sorted by the order in which the next forward pass needs them, front layers first. At most a
// window of bytes is on its way.
//
// Unlike in BytePS, small tensors share a partition, and a partition lies on the server with the
// fewest bytes so far instead of one chosen by a hash.
#pragma once

#include <memory>

#include "trainer/update_strategy.h"

namespace penstock::updates {

/// Options: partition_bytes, credit_bytes.
std::unique_ptr<UpdateStrategy> make_byteps(const UpdateContext& context, const ServerLink& link);

}  // namespace penstock::updates
