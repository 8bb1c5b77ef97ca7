// SPDX-License-Identifier: Apache-2.0
// Decides which convolutions and max pools of a training step are computed together with the batch
// norms around them, and whether the stem reads blocks of pixels. Each place has several forms with
// equal results up to rounding; the plan takes the cheapest. Needs no device: the caller gives the
// cost of a graph.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/backends/gpu/dnn_graph.h"
#include "trainer/graph.h"

namespace penstock::gpu {

/// The work that a convolution takes over. `u`, its input, may be a ReLU of a batch norm, or of the
/// sum of a batch norm and a shortcut (the end of a block). The convolution must be the first
/// reader of u: in the backward pass it is then the last to add to the gradient of u. A max pool
/// may compute u as well.
struct NodeFusion {
  bool statistics = false;  ///< forward sums its output for the batch norm that reads it
  bool normalises = false;  ///< forward and the weights' gradient compute u; u is never written
  bool ends_block = false;  ///< forward computes u, a block's end, and writes it
  bool masks_gradient =
      false;  ///< the gradient of u goes through the ReLU to the batch norms' sums

  bool operator==(const NodeFusion&) const = default;
};

class FusionPlan {
 public:
  /// Fuses nothing.
  FusionPlan() = default;
  /// `nodes` is indexed by node.
  explicit FusionPlan(std::vector<NodeFusion> nodes) : nodes_(std::move(nodes)) {}
  /// The convolution that is computed over blocks of 2x2 pixels.
  std::optional<NodeId> stem{};
  /// Graph::kInput has no fusion.
  NodeFusion of(NodeId node) const {
    const auto index = static_cast<std::size_t>(node);
    return node >= 0 && index < nodes_.size() ? nodes_[index] : NodeFusion{};
  }
  /// The number of nodes that take over any work.
  std::size_t size() const {
    return nodes_.size() - static_cast<std::size_t>(std::ranges::count(nodes_, NodeFusion{}));
  }

 private:
  std::vector<NodeFusion> nodes_;
};

/// All costs are times in the same unit; a cost may be infinite.
struct FusionCosts {
  std::function<double(const DnnGraph& graph)> graph;  ///< infinite: no engine computes it
  std::function<double(double bytes)> kernel;          ///< a Penstock kernel that moves `bytes`
};

/// Plans an f16 training step.
FusionPlan plan_fusion(const Graph& graph, std::int32_t images, const FusionCosts& costs);

/// The first convolution that can be computed over blocks of pixels, if its two graphs then cost no
/// more than in the plain order. In any phase and precision.
std::optional<NodeId> plan_stem(const Graph& graph, std::int32_t images, DType dtype,
                                const FusionCosts& costs);

/// Costs that fuse every place that can be fused: a graph costs nothing if `has_engine`, and a
/// kernel costs its bytes.
FusionCosts fuse_all(std::function<bool(const DnnGraph& graph)> has_engine);

}  // namespace penstock::gpu
