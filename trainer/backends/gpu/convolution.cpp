// SPDX-License-Identifier: Apache-2.0
// Builds convolutions, and linear layers as convolutions whose kernel is as large as their input.
#include <utility>

#include "trainer/backends/gpu/builder.h"

namespace penstock::gpu {

void Builder::visit(NodeId node, const Conv2d& op) {
  convolve(node, convolution_shape(graph_, node, spec_.batch.images, type_), op.bias);
}

void Builder::visit(NodeId node, const Linear&) {
  convolve(node, convolution_shape(graph_, node, spec_.batch.images, type_), true);
}

void Builder::compute(DnnGraph graph, const std::vector<Operand>& operands) {
  std::vector<ValueId> tensors(graph.tensors.size(), kNoValue);
  for (const auto& [tensor, value] : operands) {
    if (tensor != kNoTensor) tensors[static_cast<std::size_t>(tensor)] = value;
  }
  schedule_.add(std::move(graph), std::move(tensors));
}

void Builder::convolve(NodeId node, const ConvolutionShape& shape, bool bias) {
  const NodeFusion fusion = fusion_.of(node);
  const ValueId w = parameter(node, Role::weight, short_ ? Home::short_weights : Home::weights);
  const ValueId y = new_activation(node);
  ValueId x = kNoValue;
  if (fusion.normalises) {
    convolve_normalised(node, shape, w, y);
  } else if (fusion.ends_block) {
    x = convolve_block_end(node, shape, w, y);
  } else {
    x = reads_padded_image(graph_, node) ? image(static_cast<std::int32_t>(shape.channels))
                                         : output(input_of(node));
    if (fusion.statistics) {
      convolve_with_statistics(node, shape, x, w, y);
    } else {
      ConvForward forward = conv_forward(shape);
      compute(std::move(forward.graph), {{forward.x, x}, {forward.w, w}, {forward.y, y}});
    }
  }
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
  const ValueId dw =
      parameter(node, Role::weight, short_ ? Home::short_gradients : Home::gradients);
  if (fusion_.of(node).normalises) {
    normalised_backward_filter(node, shape, dy, dw);
  } else {
    ConvBackwardFilter filter = conv_backward_filter(shape);
    compute(std::move(filter.graph), {{filter.x, x}, {filter.dy, dy}, {filter.dw, dw}});
  }
  completes(node, Role::weight);
  if (bias) add_bias_gradient(node, dy);
  const NodeId input = input_of(node);
  if (!needs_gradient(input)) return;
  if (fusion_.of(node).masks_gradient) {
    masked_backward_data(node, shape, dy, w);
    return;
  }
  const Target dx = target(input);
  ConvBackwardData data = conv_backward_data(shape, dx.accumulate ? 1.F : 0.F);
  compute(std::move(data.graph), {{data.dy, dy}, {data.w, w}, {data.dx, dx.value}});
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
