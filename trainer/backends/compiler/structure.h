// SPDX-License-Identifier: Apache-2.0
// Facts that follow from a graph's edges: the readers of each node, the operators that are computed
// together, and the nodes that need a gradient.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/graph.h"

namespace penstock::compiler {

/// One value for each node of a graph and one for its input.
template <typename T>
class PerNode {
 public:
  explicit PerNode(const Graph& graph, const T& value = {})
      : values_(graph.nodes().size() + 1, value) {}
  auto operator[](NodeId node) -> typename std::vector<T>::reference {
    return values_[static_cast<std::size_t>(node + 1)];
  }
  auto operator[](NodeId node) const -> typename std::vector<T>::const_reference {
    return values_[static_cast<std::size_t>(node + 1)];
  }

 private:
  static_assert(Graph::kInput == -1);
  std::vector<T> values_;
};

class Structure {
 public:
  /// Borrows `graph`.
  explicit Structure(const Graph& graph);

  /// The first reader in the order of nodes; Graph::kInput if the node has no reader.
  NodeId first_reader(NodeId node) const { return first_readers_[node]; }
  /// An operator that reads a node twice counts twice.
  bool has_one_reader(NodeId node) const { return readers_[node] == 1; }

  /// The ReLU that is computed with `node`, or `node` itself.
  NodeId last_of(NodeId node) const {
    return relu_of_[node] == Graph::kInput ? node : relu_of_[node];
  }
  bool fuses_relu(NodeId node) const { return last_of(node) != node; }
  /// True if the node before it computes it.
  bool is_fused(NodeId node) const { return is_fused_[node]; }
  /// True for a batch norm whose only reader is an addition of two different nodes. The addition
  /// computes it.
  bool waits_for_sum(NodeId node) const;
  /// True if the node, or a node before it, has parameters.
  bool needs_gradient(NodeId node) const { return needs_gradient_[node]; }

 private:
  const Node& node_of(NodeId node) const { return graph_.nodes()[static_cast<std::size_t>(node)]; }

  const Graph& graph_;
  PerNode<int> readers_;
  PerNode<NodeId> first_readers_, relu_of_;  // kInput: none
  PerNode<bool> is_fused_, needs_gradient_;
};

}  // namespace penstock::compiler
