// SPDX-License-Identifier: Apache-2.0
// The sizes of a model's gradients, in the order in which backward completes them, and their
// packing into buckets. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trainer/buckets.h"
#include "trainer/graph.h"

namespace penstock::scaling {

/// Elements of each trainable tensor, in the order of nodes from the last to the first.
std::vector<std::size_t> gradient_sizes(const Graph& graph);

/// Elements of each bucket in which a run would exchange them.
std::vector<std::size_t> bucket_sizes(std::span<const std::size_t> sizes,
                                      const BucketLimits& limits);

}  // namespace penstock::scaling
