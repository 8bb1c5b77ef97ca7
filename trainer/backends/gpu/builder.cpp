// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/builder.h"

#include <algorithm>

#include "dataflow/error.h"
#include "dataflow/images/normalisation.h"

namespace penstock::gpu {

DType dtype_of(Precision precision) {
  switch (precision) {
    case Precision::f16:
      return DType::f16;
    case Precision::bf16:
      return DType::bf16;
    case Precision::f32:
    case Precision::tf32:
      return DType::f32;
  }
  return DType::f32;
}

bool is_short(Precision precision) { return dtype_of(precision) != DType::f32; }

std::vector<ArenaChunk> short_chunks(const Layouts& layouts) {
  std::vector<ArenaChunk> chunks;
  for (const ParameterLayout& layout : layouts.parameters) {
    for (std::size_t first = 0; first < layout.count; first += kChunkElements) {
      const std::size_t count = std::min<std::size_t>(kChunkElements, layout.count - first);
      chunks.push_back({layout.offset + first, static_cast<std::uint32_t>(count),
                        layout.spec.role == Role::weight});
    }
  }
  return chunks;
}

WidenGradients widen_gradients(const Homes& homes, DType type, std::size_t first_chunk,
                               std::size_t chunk_count) {
  const auto at = [&](Home home) { return homes[static_cast<std::size_t>(home)]; };
  return {.narrow = at(Home::short_gradients),
          .type = type,
          .wide = reinterpret_cast<float*>(at(Home::gradients)),
          .chunks = reinterpret_cast<const ArenaChunk*>(at(Home::tables)) + first_chunk,
          .chunk_count = static_cast<std::int32_t>(chunk_count),
          .scalars = reinterpret_cast<const StepScalars*>(at(Home::scalars))};
}

Builder::Builder(const Graph& graph, const ExecutableSpec& spec, Phase phase,
                 const Layouts& layouts, const FusionPlan& fusion, Schedule& schedule)
    : GraphBuilder(graph, spec, phase),
      layouts_(layouts),
      fusion_(fusion),
      schedule_(schedule),
      type_(dtype_of(spec.precision)),
      short_(is_short(spec.precision)),
      gradient_values_(graph, kNoValue),
      waiting_(graph),
      activated_(graph),
      sums_(graph, kNoValue),
      factors_(graph) {}

void Builder::build() {
  scalars_ = schedule_.add_value(sizeof(StepScalars), Home::scalars);
  if (short_ && layouts_.parameter_elements > 0) {
    const std::size_t count = layouts_.parameter_elements;
    const ValueId from = schedule_.add_value(count * sizeof(float), Home::weights);
    const ValueId to = schedule_.add_value(count * size_of(type_), Home::short_weights);
    schedule_.add([=, type = type_](const Addresses& at) {
      return NarrowWeights{at.as<float>(from), at(to), type, count};
    });
  }
  walk([this](NodeId node, const auto& op) { visit(node, op); }, [this] { add_loss(); }, [] {});
}

void Builder::add_loss() {
  ValueId loss = kNoValue, above = kNoValue;
  if (phase_ != Phase::forward_only && !graph_.nodes().empty()) {
    const auto images = static_cast<std::size_t>(spec_.batch.images);
    loss = new_floats(images);
    above = schedule_.add_value(images * sizeof(std::int32_t));
    const ValueId logits = output(last_node());
    const ValueId labels = schedule_.add_value(images * sizeof(std::int32_t), Home::labels);
    const ValueId dlogits = needs_gradient(last_node()) ? target(last_node()).value : kNoValue;
    schedule_.add([=, scalars = scalars_, type = type_, count = spec_.batch.images,
                   classes = graph_.shape(last_node()).channels](const Addresses& at) {
      return SoftmaxCrossEntropy{.logits = at(logits),
                                 .labels = at.as<std::int32_t>(labels),
                                 .dlogits = at(dlogits),
                                 .loss = at.as<float>(loss),
                                 .above = at.as<std::int32_t>(above),
                                 .scalars = at.as<StepScalars>(scalars),
                                 .type = type,
                                 .images = count,
                                 .classes = classes};
    });
  }
  const ValueId result = schedule_.add_value(sizeof(StepResult), Home::result);
  schedule_.add([=, scalars = scalars_, count = spec_.batch.images](const Addresses& at) {
    return SummariseStep{.loss = at.as<float>(loss),
                         .above = at.as<std::int32_t>(above),
                         .images = count,
                         .scalars = at.as<StepScalars>(scalars),
                         .result = at.as<StepResult>(result)};
  });
}

// ---- values -----------------------------------------------------------------

std::int64_t Builder::rows_of(NodeId node) const {
  const ImageShape shape = graph_.shape(node);
  return std::int64_t{spec_.batch.images} * shape.height * shape.width;
}

std::size_t Builder::elements_of(NodeId node) const {
  return graph_.shape(node).elements() * static_cast<std::size_t>(spec_.batch.images);
}

ValueId Builder::new_activation(NodeId node) {
  return schedule_.add_value(elements_of(node) * size_of(type_));
}

ValueId Builder::new_mask(NodeId node) { return schedule_.add_value((elements_of(node) + 7) / 8); }

ValueId Builder::output(NodeId node) {
  if (waiting_[node]) {
    const Normalised norm = *std::exchange(waiting_[node], std::nullopt);
    add_scale_shift(node, false, {norm}, false);
  }
  if (outputs_[node] == kNoValue) {
    PENSTOCK_ASSERT(node == Graph::kInput);
    set_output(node, image(graph_.input_shape().channels));
  }
  return outputs_[node];
}

ValueId Builder::image(std::int32_t channels, bool blocks) {
  const BatchSpec& batch = spec_.batch;
  Normalise normalise{.from = batch.pixel,
                      .type = type_,
                      .images = batch.images,
                      .pixels_per_image = std::int64_t{batch.image.height} * batch.image.width,
                      .channels = batch.image.channels,
                      .padded_channels = channels,
                      .planar = batch.planar,
                      .blocks_width = blocks ? batch.image.width : 0};
  for (std::int32_t c = 0; c < 4; ++c) {
    const auto [factor, offset] = channel_scale(std::min(c, batch.image.channels - 1), batch);
    normalise.factor[c] = factor;
    normalise.offset[c] = offset;
  }
  const ValueId pixels = schedule_.add_value(batch.pixel_bytes(), Home::pixels);
  const ValueId result = schedule_.add_value(static_cast<std::size_t>(rows_of(Graph::kInput)) *
                                             static_cast<std::size_t>(channels) * size_of(type_));
  schedule_.add([=, scalars = scalars_](const Addresses& at) {
    Normalise call = normalise;
    call.pixels = at(pixels);
    call.to = at(result);
    call.scalars = at.as<StepScalars>(scalars);
    return call;
  });
  return result;
}

// ---- gradients --------------------------------------------------------------

Builder::Target Builder::target(NodeId node) {
  ValueId& value = gradient_values_[node];
  if (value != kNoValue) return {value, true};
  value = new_activation(node);
  return {value, false};
}

void Builder::give(NodeId node, ValueId value, bool keep) {
  if (!needs_gradient(node)) return;
  ValueId& gradient = gradient_values_[node];
  if (gradient != kNoValue) {
    scale_shift(node, {.x = value, .y = gradient, .residual = gradient});
  } else if (!keep) {
    gradient = value;
  } else {
    gradient = new_activation(node);
    scale_shift(node, {.x = value, .y = gradient});
  }
}

void Builder::scale_shift(NodeId node, const ScaleShiftOperands& of) {
  const ScaleShift shape{.relu = of.relu,
                         .type = type_,
                         .rows = rows_of(node),
                         .channels = graph_.shape(node).channels};
  schedule_.add([=](const Addresses& at) {
    ScaleShift call = shape;
    call.x = at(of.x);
    call.multiplier = at.as<float>(of.multiplier);
    call.addend = at.as<float>(of.addend);
    call.residual = at(of.residual);
    call.residual_multiplier = at.as<float>(of.residual_multiplier);
    call.residual_addend = at.as<float>(of.residual_addend);
    call.y = at(of.y);
    call.mask = at.as<std::uint8_t>(of.mask);
    return call;
  });
}

// ---- parameters -------------------------------------------------------------

ValueId Builder::parameter(NodeId node, Role role, Home home) {
  const ParameterLayout& layout = layouts_.parameters[layouts_.index_of(node, role)];
  const bool is_wide = home == Home::weights || home == Home::gradients;
  const std::size_t size = is_wide ? sizeof(float) : size_of(type_);
  return schedule_.add_value(layout.count * size, home, layout.offset * size);
}

void Builder::completes(NodeId node, Role role) {
  schedule_.completes(layouts_.index_of(node, role));
}

ValueId Builder::running(NodeId node, Role role) {
  const ParameterLayout& buffer = layouts_.buffer_of(node, role);
  return schedule_.add_value(buffer.count * sizeof(float), Home::running,
                             buffer.offset * sizeof(float));
}

// ---- operators without weights ------------------------------------------------

void Builder::visit(NodeId node, const Relu&) {
  const ValueId x = output(input_of(node)), y = new_activation(node);
  scale_shift(node, {.x = x, .y = y, .relu = true});
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
      if (!waiting_[norm_node]) continue;
      const Normalised norm = *std::exchange(waiting_[norm_node], std::nullopt);
      finish_sum(node, norm, other);
      return;
    }
  }
  const NodeId last = last_of(node);
  const ValueId y = new_activation(node);
  ValueId sum = output(inputs[0]);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const bool relu = fuses_relu(node) && i + 1 == inputs.size();
    scale_shift(node, {.x = sum, .y = y, .residual = output(inputs[i]), .relu = relu});
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
  const Normalised norm = normalises ? activated_[input]->norm : Normalised{};
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

/// `shape` has the numbers of channels of both tensors.
void Builder::copy_channels(NodeId node, CopyChannels shape, ValueId from, ValueId to) {
  shape.rows = rows_of(node);
  shape.type = type_;
  schedule_.add([=](const Addresses& at) {
    CopyChannels call = shape;
    call.from = at(from);
    call.to = at(to);
    return call;
  });
}

void Builder::visit(NodeId node, const Concat&) {
  const ValueId y = new_activation(node);
  const auto for_each_slice = [this, node](const auto& body) {
    std::int32_t first = 0;
    for (const NodeId input : node_of(node).inputs) {
      body(input, first);
      first += graph_.shape(input).channels;
    }
  };
  for_each_slice([&](NodeId input, std::int32_t first) {
    const std::int32_t channels = graph_.shape(input).channels;
    copy_channels(node,
                  {.channels = channels,
                   .from_channels = channels,
                   .to_channels = graph_.shape(node).channels,
                   .to_first = first},
                  output(input), y);
  });
  set_output(node, y);
  if (!needs_gradient(node)) return;
  reverse([=, this] {
    for_each_slice([&](NodeId input, std::int32_t first) { slice_backward(node, first, input); });
  });
}

void Builder::visit(NodeId node, const PadChannels& op) {
  const NodeId input = input_of(node);
  const ValueId x = output(input), y = new_activation(node);
  const std::int32_t channels = graph_.shape(input).channels;
  copy_channels(node,
                {.channels = channels,
                 .from_channels = channels,
                 .to_channels = graph_.shape(node).channels,
                 .to_first = op.before,
                 .zero_rest = true},
                x, y);
  set_output(node, y);
  reverse([=, this, before = op.before] { slice_backward(node, before, input); });
}

/// Gives the channels from `first` on of the node's gradient to `input`.
void Builder::slice_backward(NodeId node, std::int32_t first, NodeId input) {
  if (!needs_gradient(input)) return;
  const ValueId dy = gradient_of(node);
  const Target dx = target(input);
  const std::int32_t channels = graph_.shape(input).channels;
  copy_channels(node,
                {.channels = channels,
                 .from_channels = graph_.shape(node).channels,
                 .from_first = first,
                 .to_channels = channels,
                 .accumulate = dx.accumulate},
                dy, dx.value);
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
