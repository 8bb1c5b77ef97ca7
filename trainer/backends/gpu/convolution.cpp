// SPDX-License-Identifier: Apache-2.0
// Convolutions, and linear layers as convolutions whose kernel is as large as their input.
#include <utility>

#include "trainer/backends/gpu/builder.h"

namespace penstock::gpu {

void Builder::visit(NodeId node, const Conv2d& op) {
  const ImageShape in = graph_.shape(input_of(node));
  convolve(node,
           {.images = spec_.batch.images,
            .channels = reads_padded_image(graph_, node) ? padded_image_channels(in.channels, type_)
                                                         : in.channels,
            .height = in.height,
            .width = in.width,
            .filters = op.channels,
            .groups = op.groups,
            .window = op.window,
            .dtype = type_},
           op.bias);
}

void Builder::visit(NodeId node, const Linear& op) {
  const ImageShape in = graph_.shape(input_of(node));
  convolve(node,
           {.images = spec_.batch.images,
            .channels = reads_padded_image(graph_, node) ? padded_image_channels(in.channels, type_)
                                                         : in.channels,
            .height = in.height,
            .width = in.width,
            .filters = op.features,
            .window = {.kernel_h = in.height, .kernel_w = in.width},
            .dtype = type_},
           true);
}

void Builder::convolve(NodeId node, const ConvolutionShape& shape, bool bias) {
  const bool padded = reads_padded_image(graph_, node);
  const ValueId x =
      padded ? image(static_cast<std::int32_t>(shape.channels)) : output(input_of(node));
  const ValueId w = parameter(node, Role::weight, short_ ? Home::short_weights : Home::weights);
  const ValueId y = new_activation(node);
  ConvForward forward = conv_forward(shape);
  std::vector<ValueId> tensors(forward.graph.tensors.size(), kNoValue);
  tensors[static_cast<std::size_t>(forward.x)] = x;
  tensors[static_cast<std::size_t>(forward.w)] = w;
  tensors[static_cast<std::size_t>(forward.y)] = y;
  schedule_.add(std::move(forward.graph), std::move(tensors));
  if (bias || fuses_relu(node)) {
    const ValueId addend = bias ? float_parameter(node, Role::bias) : kNoValue;
    const ScaleShift shift{.relu = fuses_relu(node),
                           .type = type_,
                           .rows = rows_of(node),
                           .channels = graph_.shape(node).channels};
    schedule_.add([=](const Addresses& at) {
      ScaleShift call = shift;
      call.x = call.y = at(y);
      call.addend = at.as<float>(addend);
      return call;
    });
  }
  set_output(last_of(node), y);
  if (trains())
    reverse([this, node, shape, bias, x, w] { convolve_backward(node, shape, bias, x, w); });
}

void Builder::convolve_backward(NodeId node, const ConvolutionShape& shape, bool bias, ValueId x,
                                ValueId w) {
  const NodeId last = last_of(node);
  const ValueId dy = gradient_of(last);
  if (fuses_relu(node)) relu_backward(last, dy, {dy, false});
  ConvBackwardFilter filter = conv_backward_filter(shape);
  std::vector<ValueId> tensors(filter.graph.tensors.size(), kNoValue);
  tensors[static_cast<std::size_t>(filter.x)] = x;
  tensors[static_cast<std::size_t>(filter.dy)] = dy;
  tensors[static_cast<std::size_t>(filter.dw)] =
      parameter(node, Role::weight, short_ ? Home::short_gradients : Home::gradients);
  schedule_.add(std::move(filter.graph), std::move(tensors));
  completes(node, Role::weight);
  if (bias) add_bias_gradient(node, dy);
  const NodeId input = input_of(node);
  if (!needs_gradient(input)) return;
  const Target dx = target(input);
  ConvBackwardData data = conv_backward_data(shape, dx.accumulate ? 1.F : 0.F);
  tensors.assign(data.graph.tensors.size(), kNoValue);
  tensors[static_cast<std::size_t>(data.dy)] = dy;
  tensors[static_cast<std::size_t>(data.w)] = w;
  tensors[static_cast<std::size_t>(data.dx)] = dx.value;
  schedule_.add(std::move(data.graph), std::move(tensors));
}

void Builder::add_bias_gradient(NodeId node, ValueId dy) {
  const std::int64_t rows = rows_of(node);
  const std::int32_t channels = graph_.shape(node).channels, blocks = sum_blocks(rows, channels);
  const ValueId partial =
      new_floats(static_cast<std::size_t>(blocks) * static_cast<std::size_t>(channels));
  const ValueId sums = float_gradient(node, Role::bias);
  schedule_.add([=, type = type_](const Addresses& at) {
    return ColumnSums{at(dy), at.as<float>(partial), type, rows, channels};
  });
  schedule_.add([=](const Addresses& at) {
    return ColumnFinish{at.as<float>(partial), blocks, channels, at.as<float>(sums)};
  });
  completes(node, Role::bias);
}

}  // namespace penstock::gpu
