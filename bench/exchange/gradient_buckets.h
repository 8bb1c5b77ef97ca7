// SPDX-License-Identifier: Apache-2.0
// The gradients of a model as they are exchanged: sizes in the order in which backward finishes
// them, packed into buckets. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trainer/graph.h"

namespace penstock {

/// Elements of each trainable tensor, in the order of nodes from the last to the first.
std::vector<std::size_t> gradient_sizes(const Graph& graph);

/// Elements of each bucket: neighbours share one while together they have at most `bucket_bytes`
/// as f32; a larger tensor has one of its own. 0 bytes: each tensor has.
std::vector<std::size_t> pack_buckets(std::span<const std::size_t> sizes, double bucket_bytes);

}  // namespace penstock
