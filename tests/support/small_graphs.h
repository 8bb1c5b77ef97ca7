// SPDX-License-Identifier: Apache-2.0
// Every operator in small graphs of awkward shapes: odd sizes and channels, strides 1 to 3, uneven
// padding, groups, images of one pixel. Each graph begins with a layer that has weights, so that
// gradients must flow through all later operators, and ends in logits.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/plain_net.h"
#include "trainer/graph.h"

namespace penstock {

struct SmallGraph {
  std::string name;  ///< letters, digits and underscores
  std::int32_t images = 0;
  Graph graph;

  std::int32_t classes() const { return graph.nodes().back().shape.channels; }

  friend std::ostream& operator<<(std::ostream& out, const SmallGraph& small) {
    return out << small.name;
  }
};

std::vector<SmallGraph> small_graphs();

/// Random pixels and labels, all of them valid.
PlainBatch random_batch(const ImageShape& shape, std::int32_t images, std::int32_t classes,
                        std::uint64_t seed);

/// Initial weights whose values do not hide mistakes: biases and shifts that are not 0, scales and
/// variances that are not 1.
PlainWeights uneven_weights(const Graph& graph, std::uint64_t seed);

}  // namespace penstock
