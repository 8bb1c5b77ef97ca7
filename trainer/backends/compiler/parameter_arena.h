// SPDX-License-Identifier: Apache-2.0
// The places of parameters, gradients and running statistics in their arenas. Parameters are in the
// order in which the backward pass completes them, so that a bucket of gradients is one range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dataflow/device.h"
#include "dataflow/error.h"
#include "trainer/backend.h"
#include "trainer/graph.h"

namespace penstock::compiler {

/// A backend's layout of a parameter derives from it.
struct ArenaRange {
  ParameterSpec spec;
  std::size_t offset = 0, count = 0;  ///< f32 elements
};

template <typename Layout>
struct ArenaLayouts {
  std::vector<Layout> parameters, buffers;  ///< buffers: running statistics
  std::size_t parameter_elements = 0, buffer_elements = 0;

  ArenaLayouts() = default;
  /// `layout_of` makes the layout of a ParameterSpec. place() sets the offsets.
  template <typename LayoutOf>
  ArenaLayouts(const Graph& graph, const LayoutOf& layout_of) {
    std::vector<ParameterSpec> specs = graph.parameters();
    // Backward goes from the last node to the first; inside a node the order stays.
    std::ranges::stable_sort(specs, [](const auto& a, const auto& b) { return a.node > b.node; });
    for (const ParameterSpec& spec : specs) parameters.push_back(layout_of(spec));
    for (const ParameterSpec& spec : graph.buffers()) buffers.push_back(layout_of(spec));
  }
  /// Each range begins at a multiple of `alignment` elements.
  void place(std::size_t alignment) {
    parameter_elements = place(parameters, alignment);
    buffer_elements = place(buffers, alignment);
  }

  std::size_t index_of(NodeId node, Role role) const { return find(parameters, node, role); }
  const Layout& buffer_of(NodeId node, Role role) const {
    return buffers[find(buffers, node, role)];
  }
  /// The layout of a parameter or a buffer.
  const Layout& of(const ParameterSpec& spec) const {
    const bool is_buffer = spec.role == Role::running_mean || spec.role == Role::running_variance;
    return is_buffer ? buffer_of(spec.node, spec.role) : parameters[index_of(spec.node, spec.role)];
  }

  /// The parameters in arenas of f32, which the caller owns.
  ParameterSet set_in(const Buffer& weights, const Buffer& gradients, const Buffer& running) const {
    ParameterSet set;
    for (const ArenaRange& range : parameters) {
      set.parameters.push_back({range.spec, tensor(weights, range.offset, range.count),
                                tensor(gradients, range.offset, range.count)});
    }
    for (const ArenaRange& range : buffers) {
      set.buffers.push_back({range.spec, tensor(running, range.offset, range.count), {}});
    }
    set.weights = tensor(weights, 0, parameter_elements);
    set.gradients = tensor(gradients, 0, parameter_elements);
    set.running = tensor(running, 0, buffer_elements);
    return set;
  }

 private:
  static std::size_t place(std::vector<Layout>& layouts, std::size_t alignment) {
    std::size_t end = 0;
    for (ArenaRange& range : layouts) {
      range.offset = end;
      end += (range.count + alignment - 1) / alignment * alignment;
    }
    return end;
  }
  static std::size_t find(const std::vector<Layout>& layouts, NodeId node, Role role) {
    const auto found = std::ranges::find_if(layouts, [&](const ArenaRange& range) {
      return range.spec.node == node && range.spec.role == role;
    });
    PENSTOCK_ASSERT(found != layouts.end());
    return static_cast<std::size_t>(found - layouts.begin());
  }
  static Tensor tensor(const Buffer& arena, std::size_t offset, std::size_t count) {
    if (count == 0) return {};
    return {arena.bytes().data() + offset * sizeof(float), count, DType::f32};
  }
};

}  // namespace penstock::compiler
