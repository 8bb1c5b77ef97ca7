// SPDX-License-Identifier: Apache-2.0
// Operators without weights.
#include <algorithm>
#include <utility>

#include "dataflow/error.h"
#include "trainer/backends/gpu/builder.h"

namespace penstock::gpu {

void Builder::visit(NodeId node, const Relu&) {
  const ValueId x = output(input_of(node)), y = new_activation(node);
  const ScaleShift shape{
      .relu = true, .type = type_, .rows = rows_of(node), .channels = graph_.shape(node).channels};
  schedule_.add([=](const Addresses& at) {
    ScaleShift call = shape;
    call.x = at(x);
    call.y = at(y);
    return call;
  });
  set_output(node, y);
  if (!needs_gradient(input_of(node))) return;
  reverse([this, node] { relu_backward(node, gradient_of(node), target(input_of(node))); });
}

/// `node` is the node whose output is the ReLU's output.
void Builder::relu_backward(NodeId node, ValueId dy, Target dx) {
  const ValueId y = output(node);
  schedule_.add(
      [=, type = type_, count = static_cast<std::int64_t>(elements_of(node))](const Addresses& at) {
        return ReluBackward{at(dy), nullptr, at(y), at(dx.value), dx.accumulate, type, count};
      });
}

void Builder::visit(NodeId node, const Add&) {
  const std::vector<NodeId>& inputs = node_of(node).inputs;
  if (inputs.size() == 2) {
    const NodeId later = std::max(inputs[0], inputs[1]), earlier = std::min(inputs[0], inputs[1]);
    for (const auto& [norm_node, other] : {std::pair(later, earlier), std::pair(earlier, later)}) {
      if (!waiting_[slot(norm_node)]) continue;
      const Normalised norm = *std::exchange(waiting_[slot(norm_node)], std::nullopt);
      finish_sum(node, norm, other);
      return;
    }
  }
  const NodeId last = last_of(node);
  const ValueId y = new_activation(node);
  ValueId sum = output(inputs[0]);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const ValueId added = output(inputs[i]);
    const ScaleShift shape{.relu = fuses_relu(node) && i + 1 == inputs.size(),
                           .type = type_,
                           .rows = rows_of(node),
                           .channels = graph_.shape(node).channels};
    schedule_.add([=](const Addresses& at) {
      ScaleShift call = shape;
      call.x = at(sum);
      call.residual = at(added);
      call.y = at(y);
      return call;
    });
    sum = y;
  }
  set_output(last, y);
  if (!needs_gradient(node)) return;
  reverse([this, node, last] {
    const ValueId dy = gradient_of(last);
    if (fuses_relu(node)) relu_backward(last, dy, {dy, false});
    const std::vector<NodeId>& to = node_of(node).inputs;
    for (std::size_t i = 0; i < to.size(); ++i) give(to[i], dy, i + 1 < to.size());
  });
}

PoolShape Builder::pool_shape(NodeId node, const Window& window) const {
  const ImageShape in = graph_.shape(input_of(node)), out = graph_.shape(node);
  return {spec_.batch.images, in.height, in.width, in.channels, out.height, out.width, window};
}

void Builder::visit(NodeId node, const MaxPool& op) {
  PENSTOCK_ASSERT(op.window.kernel_h * op.window.kernel_w <= 256);
  const NodeId input = input_of(node);
  // If the pool normalises, its input is the ReLU of a batch norm that no operation has computed.
  const bool normalises = fusion_.of(node).normalises;
  const Normalised norm = normalises ? activated_[slot(input)]->norm : Normalised{};
  const ValueId x = normalises ? norm.x : output(input), y = new_activation(node);
  const ValueId index = needs_gradient(input) ? schedule_.add_value(elements_of(node)) : kNoValue;
  const PoolShape shape = pool_shape(node, op.window);
  schedule_.add([=, type = type_](const Addresses& at) {
    return MaxPoolForward{at(x),
                          at(y),
                          at.as<std::uint8_t>(index),
                          shape,
                          type,
                          at.as<float>(norm.multiplier),
                          at.as<float>(norm.addend)};
  });
  set_output(node, y);
  if (index == kNoValue) return;
  reverse([=, this] {
    const ValueId dy = gradient_of(node);
    const Target dx = target(input);
    schedule_.add([=, type = type_](const Addresses& at) {
      return MaxPoolBackward{at(dy), at.as<std::uint8_t>(index), at(dx.value), dx.accumulate, shape,
                             type};
    });
  });
}

void Builder::visit(NodeId node, const AvgPool& op) { pool(node, op.window, op.count_padding); }

void Builder::visit(NodeId node, const GlobalAvgPool&) {
  const ImageShape in = graph_.shape(input_of(node));
  pool(node, {.kernel_h = in.height, .kernel_w = in.width}, true);
}

void Builder::pool(NodeId node, const Window& window, bool count_padding) {
  const NodeId input = input_of(node);
  const ValueId x = output(input), y = new_activation(node);
  const PoolShape shape = pool_shape(node, window);
  schedule_.add([=, type = type_](const Addresses& at) {
    return AvgPoolForward{at(x), at(y), count_padding, shape, type};
  });
  set_output(node, y);
  if (!needs_gradient(input)) return;
  reverse([=, this] {
    const ValueId dy = gradient_of(node);
    const Target dx = target(input);
    schedule_.add([=, type = type_](const Addresses& at) {
      return AvgPoolBackward{at(dy), at(dx.value), count_padding, dx.accumulate, shape, type};
    });
  });
}

void Builder::visit(NodeId node, const Concat&) {
  const ValueId y = new_activation(node);
  CopyChannels copy{.rows = rows_of(node), .type = type_};
  copy.to_channels = graph_.shape(node).channels;
  for (const NodeId input : node_of(node).inputs) {
    const ValueId x = output(input);
    copy.channels = copy.from_channels = graph_.shape(input).channels;
    schedule_.add([=](const Addresses& at) {
      CopyChannels call = copy;
      call.from = at(x);
      call.to = at(y);
      return call;
    });
    copy.to_first += copy.channels;
  }
  set_output(node, y);
  if (!needs_gradient(node)) return;
  reverse([this, node] {
    std::int32_t first = 0;
    for (const NodeId input : node_of(node).inputs) {
      slice_backward(node, first, input);
      first += graph_.shape(input).channels;
    }
  });
}

void Builder::visit(NodeId node, const PadChannels& op) {
  const NodeId input = input_of(node);
  const ValueId x = output(input), y = new_activation(node);
  CopyChannels copy{.rows = rows_of(node), .zero_rest = true, .type = type_};
  copy.channels = copy.from_channels = graph_.shape(input).channels;
  copy.to_channels = graph_.shape(node).channels;
  copy.to_first = op.before;
  schedule_.add([=](const Addresses& at) {
    CopyChannels call = copy;
    call.from = at(x);
    call.to = at(y);
    return call;
  });
  set_output(node, y);
  reverse([=, this, before = op.before] { slice_backward(node, before, input); });
}

/// Gives the channels from `first` on of the node's gradient to `input`.
void Builder::slice_backward(NodeId node, std::int32_t first, NodeId input) {
  if (!needs_gradient(input)) return;
  const ValueId dy = gradient_of(node);
  const Target dx = target(input);
  CopyChannels copy{.rows = rows_of(node), .accumulate = dx.accumulate, .type = type_};
  copy.channels = copy.to_channels = graph_.shape(input).channels;
  copy.from_channels = graph_.shape(node).channels;
  copy.from_first = first;
  schedule_.add([=](const Addresses& at) {
    CopyChannels call = copy;
    call.from = at(dy);
    call.to = at(dx.value);
    return call;
  });
}

void Builder::visit(NodeId node, const Lrn& op) {
  const NodeId input = input_of(node);
  const ValueId x = output(input), y = new_activation(node);
  const std::int64_t rows = rows_of(node);
  const std::int32_t channels = graph_.shape(node).channels;
  schedule_.add([=, type = type_](const Addresses& at) {
    return LrnForward{at(x), at(y), op, type, rows, channels};
  });
  set_output(node, y);
  if (!needs_gradient(input)) return;
  reverse([=, this] {
    const ValueId dy = gradient_of(node);
    const Target dx = target(input);
    schedule_.add([=, type = type_](const Addresses& at) {
      return LrnBackward{at(x), at(dy), at(dx.value), dx.accumulate, op, type, rows, channels};
    });
  });
}

void Builder::visit(NodeId node, const Dropout& op) {
  const NodeId input = input_of(node);
  const ValueId x = output(input);
  if (!trains()) {
    set_output(node, x);
    return;
  }
  const ImageShape shape = graph_.shape(node);
  const DropoutApply dropout{.seed = spec_.seed,
                             .node = node,
                             .rate = op.rate,
                             .type = type_,
                             .images = spec_.batch.images,
                             .channels = shape.channels,
                             .pixels_per_image = std::int64_t{shape.height} * shape.width};
  const auto apply = [this, dropout](ValueId from, Target to) {
    schedule_.add([=, scalars = scalars_](const Addresses& at) {
      DropoutApply call = dropout;
      call.x = at(from);
      call.y = at(to.value);
      call.accumulate = to.accumulate;
      call.scalars = at.as<StepScalars>(scalars);
      return call;
    });
  };
  const ValueId y = new_activation(node);
  apply(x, {y, false});
  set_output(node, y);
  if (!needs_gradient(input)) return;
  reverse([=, this] { apply(gradient_of(node), target(input)); });
}

}  // namespace penstock::gpu
