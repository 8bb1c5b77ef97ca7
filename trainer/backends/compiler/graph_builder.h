// SPDX-License-Identifier: Apache-2.0
// The part of a builder that knows no vendor. A builder visits each operator once, in order. A
// visit adds the forward operations and registers a function that adds the backward operations.
// These functions run in reverse order after the loss.
//
// An operator computes the ReLU behind it if the ReLU is its only reader; an addition computes a
// batch norm if it is the norm's only reader.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/backend.h"
#include "trainer/backends/compiler/step_plan.h"
#include "trainer/backends/compiler/structure.h"

namespace penstock::compiler {

class GraphBuilder {
 protected:
  /// Borrows all arguments.
  GraphBuilder(const Graph& graph, const ExecutableSpec& spec, Phase phase)
      : graph_(graph), spec_(spec), phase_(phase), structure_(graph), outputs_(graph, kNoValue) {}
  ~GraphBuilder() = default;

  /// Calls visit(node, operator) for the operators that no other computes, then add_loss(), then
  /// what reverse() registered. Calls done() after each node and each registered function.
  template <typename Visit, typename Loss, typename Done>
  void walk(const Visit& visit, const Loss& add_loss, Done done) {
    for (std::size_t index = 0; index < graph_.nodes().size(); ++index) {
      const auto node = static_cast<NodeId>(index);
      if (!structure_.is_fused(node)) {
        std::visit([&](const auto& op) { visit(node, op); }, node_of(node).op);
      }
      done();
    }
    add_loss();
    for (auto backward = backward_.rbegin(); backward != backward_.rend(); ++backward) {
      (*backward)();
      done();
    }
  }
  void reverse(std::function<void()> backward) { backward_.push_back(std::move(backward)); }

  const Node& node_of(NodeId node) const { return graph_.nodes()[static_cast<std::size_t>(node)]; }
  NodeId input_of(NodeId node) const { return node_of(node).inputs.front(); }
  /// The node whose output is the loss's input.
  NodeId last_node() const { return static_cast<NodeId>(graph_.nodes().size()) - 1; }
  NodeId last_of(NodeId node) const { return structure_.last_of(node); }
  bool fuses_relu(NodeId node) const { return structure_.fuses_relu(node); }

  bool trains() const noexcept { return phase_ == Phase::train; }
  bool needs_gradient(NodeId node) const { return trains() && structure_.needs_gradient(node); }

  /// If a ReLU is computed with `node`, its output is that of the ReLU.
  void set_output(NodeId node, ValueId value) { outputs_[node] = value; }

  const Graph& graph_;
  const ExecutableSpec& spec_;
  const Phase phase_;
  const Structure structure_;
  PerNode<ValueId> outputs_;

 private:
  std::vector<std::function<void()>> backward_;
};

}  // namespace penstock::compiler
