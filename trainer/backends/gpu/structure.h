// SPDX-License-Identifier: Apache-2.0
// Facts that follow from a graph's edges: the readers of each node, the operators that are computed
// together, and the shapes of convolutions.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/graph.h"

namespace penstock::gpu {

class Structure {
 public:
  /// Borrows `graph`.
  explicit Structure(const Graph& graph);

  /// An operator that reads a node twice counts twice.
  int readers(NodeId node) const { return readers_[slot(node)]; }
  /// The first reader in the order of nodes; Graph::kInput if the node has no reader.
  NodeId first_reader(NodeId node) const { return first_readers_[slot(node)]; }
  bool has_one_reader(NodeId node) const { return readers(node) == 1; }

  /// The ReLU that is computed with `node`, or `node` itself.
  NodeId last_of(NodeId node) const {
    return relu_of_[slot(node)] == Graph::kInput ? node : relu_of_[slot(node)];
  }
  bool fuses_relu(NodeId node) const { return last_of(node) != node; }
  /// True if the node before it computes it.
  bool is_fused(NodeId node) const { return is_fused_[slot(node)]; }
  /// True for a batch norm whose only reader is an addition of two different nodes. The addition
  /// computes it.
  bool waits_for_sum(NodeId node) const;

 private:
  static std::size_t slot(NodeId node) { return static_cast<std::size_t>(node + 1); }
  const Node& node_of(NodeId node) const { return graph_.nodes()[static_cast<std::size_t>(node)]; }

  const Graph& graph_;
  std::vector<int> readers_;
  std::vector<NodeId> first_readers_, relu_of_;  // kInput: none
  std::vector<bool> is_fused_;
};

/// The shape of a Conv2d or Linear as it is computed, with padded image channels.
ConvolutionShape convolution_shape(const Graph& graph, NodeId node, std::int32_t images,
                                   DType dtype);

}  // namespace penstock::gpu
