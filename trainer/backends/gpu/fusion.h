// SPDX-License-Identifier: Apache-2.0
// Which convolutions of a training step, and max pools, are computed together with the batch norms
// around them. Every place has forms that give the same numbers, up to rounding; the cheapest one
// is taken. Needs no device: the caller knows what a graph costs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "trainer/backends/gpu/dnn_graph.h"
#include "trainer/backends/gpu/structure.h"
#include "trainer/graph.h"

namespace penstock::gpu {

/// What a convolution takes over. Its input may be `u`, a ReLU of a batch norm, or of the sum of a
/// batch norm and a shortcut (a block's end), where it is the first to read it: in backward it is
/// then the last to add to its gradient. A max pool may compute u as well.
struct NodeFusion {
  bool statistics = false;  ///< forward sums its output for the batch norm that reads it
  bool normalises = false;  ///< forward and the weights' gradient compute u; no one writes it
  bool ends_block = false;  ///< forward computes u, a block's end, and writes it
  bool masks_gradient =
      false;  ///< the gradient of u goes through the ReLU to the batch norms' sums

  bool operator==(const NodeFusion&) const = default;
};

class FusionPlan {
 public:
  /// Nothing is fused.
  FusionPlan() = default;
  /// By node.
  explicit FusionPlan(std::vector<NodeFusion> nodes) : nodes_(std::move(nodes)) {}
  /// Graph::kInput has none.
  NodeFusion of(NodeId node) const {
    const auto index = static_cast<std::size_t>(node);
    return node >= 0 && index < nodes_.size() ? nodes_[index] : NodeFusion{};
  }
  /// Nodes that take over anything.
  std::size_t size() const {
    return nodes_.size() - static_cast<std::size_t>(std::ranges::count(nodes_, NodeFusion{}));
  }

 private:
  std::vector<NodeFusion> nodes_;
};

/// In one unit of time, at most infinite.
struct FusionCosts {
  std::function<double(const DnnGraph& graph)> graph;  ///< infinite: there is no engine
  std::function<double(double bytes)> kernel;          ///< of our own that moves so many bytes
};

/// Of a training step in f16.
FusionPlan plan_fusion(const Graph& graph, const Structure& structure, std::int32_t images,
                       const FusionCosts& costs);

/// Graphs cost nothing where `has_engine`, and kernels their bytes: what can be fused is.
FusionCosts fuse_all(std::function<bool(const DnnGraph& graph)> has_engine);

}  // namespace penstock::gpu
