// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/compiler/structure.h"

#include <algorithm>
#include <variant>

namespace penstock::compiler {

Structure::Structure(const Graph& graph)
    : graph_(graph),
      readers_(graph),
      first_readers_(graph, Graph::kInput),
      relu_of_(graph, Graph::kInput),
      is_fused_(graph),
      needs_gradient_(graph) {
  const auto count = static_cast<NodeId>(graph.nodes().size());
  for (NodeId node = 0; node < count; ++node) {
    const std::vector<NodeId>& inputs = node_of(node).inputs;
    for (const NodeId input : inputs) {
      if (readers_[input]++ == 0) first_readers_[input] = node;
    }
    needs_gradient_[node] =
        node_of(node).parameters > 0 ||
        std::ranges::any_of(inputs, [&](NodeId input) { return needs_gradient(input); });
  }
  for (NodeId node = 0; node < count; ++node) {
    if (!std::holds_alternative<Relu>(node_of(node).op)) continue;
    const NodeId before = node_of(node).inputs.front();
    if (before == Graph::kInput || !has_one_reader(before)) continue;
    const Op& op = node_of(before).op;
    const bool can = std::holds_alternative<Conv2d>(op) || std::holds_alternative<BatchNorm>(op) ||
                     std::holds_alternative<Add>(op) || std::holds_alternative<Linear>(op);
    if (!can) continue;
    relu_of_[before] = node;
    is_fused_[node] = true;
  }
}

bool Structure::waits_for_sum(NodeId node) const {
  if (!std::holds_alternative<BatchNorm>(node_of(node).op) || !has_one_reader(node)) return false;
  const Node& reader = node_of(first_reader(node));
  return std::holds_alternative<Add>(reader.op) && reader.inputs.size() == 2;
}

}  // namespace penstock::compiler
