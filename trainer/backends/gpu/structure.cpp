// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/structure.h"

#include "dataflow/error.h"
#include "trainer/backends/gpu/layouts.h"

namespace penstock::gpu {

Structure::Structure(const Graph& graph)
    : graph_(graph),
      readers_(graph.nodes().size() + 1),
      first_readers_(graph.nodes().size() + 1, Graph::kInput),
      relu_of_(graph.nodes().size() + 1, Graph::kInput),
      is_fused_(graph.nodes().size() + 1) {
  for (std::size_t index = 0; index < graph.nodes().size(); ++index) {
    for (const NodeId input : graph.nodes()[index].inputs) {
      if (readers_[slot(input)]++ == 0) first_readers_[slot(input)] = static_cast<NodeId>(index);
    }
  }
  for (std::size_t index = 0; index < graph.nodes().size(); ++index) {
    const Node& node = graph.nodes()[index];
    if (!std::holds_alternative<Relu>(node.op) || node.inputs[0] == Graph::kInput) continue;
    const NodeId before = node.inputs[0];
    const Op& op = node_of(before).op;
    const bool can = std::holds_alternative<Conv2d>(op) || std::holds_alternative<BatchNorm>(op) ||
                     std::holds_alternative<Add>(op) || std::holds_alternative<Linear>(op);
    if (!can || !has_one_reader(before)) continue;
    relu_of_[slot(before)] = static_cast<NodeId>(index);
    is_fused_[index + 1] = true;
  }
}

bool Structure::waits_for_sum(NodeId node) const {
  if (!std::holds_alternative<BatchNorm>(node_of(node).op) || !has_one_reader(node)) return false;
  const Node& reader = node_of(first_reader(node));
  return std::holds_alternative<Add>(reader.op) && reader.inputs.size() == 2;
}

ConvolutionShape convolution_shape(const Graph& graph, NodeId node, std::int32_t images,
                                   DType dtype) {
  const Node& of = graph.nodes()[static_cast<std::size_t>(node)];
  const ImageShape in = graph.shape(of.inputs.front());
  ConvolutionShape shape{.images = images,
                         .channels = reads_padded_image(graph, node)
                                         ? padded_image_channels(in.channels, dtype)
                                         : in.channels,
                         .height = in.height,
                         .width = in.width,
                         .filters = of.shape.channels,
                         .dtype = dtype};
  if (const auto* const convolution = std::get_if<Conv2d>(&of.op)) {
    shape.groups = convolution->groups;
    shape.window = convolution->window;
  } else {
    PENSTOCK_ASSERT(std::holds_alternative<Linear>(of.op));
    shape.window = {.kernel_h = in.height, .kernel_w = in.width};
  }
  return shape;
}

}  // namespace penstock::gpu
