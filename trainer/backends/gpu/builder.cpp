// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/builder.h"

#include <algorithm>
#include <utility>

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
    : graph_(graph),
      spec_(spec),
      phase_(phase),
      layouts_(layouts),
      fusion_(fusion),
      structure_(graph),
      schedule_(schedule),
      type_(dtype_of(spec.precision)),
      short_(is_short(spec.precision)),
      outputs_(graph.nodes().size() + 1, kNoValue),
      needs_gradient_(graph.nodes().size() + 1),
      gradient_values_(graph.nodes().size() + 1, kNoValue),
      waiting_(graph.nodes().size() + 1),
      activated_(graph.nodes().size() + 1),
      sums_(graph.nodes().size() + 1, kNoValue),
      factors_(graph.nodes().size() + 1) {
  for (std::size_t index = 0; index < graph.nodes().size(); ++index) {
    const Node& node = graph.nodes()[index];
    needs_gradient_[index + 1] =
        node.parameters > 0 ||
        std::any_of(node.inputs.begin(), node.inputs.end(),
                    [&](NodeId input) { return needs_gradient_[slot(input)]; });
  }
}

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
  for (std::size_t index = 0; index < graph_.nodes().size(); ++index) {
    const auto node = static_cast<NodeId>(index);
    if (structure_.is_fused(node)) continue;
    std::visit([&](const auto& op) { visit(node, op); }, graph_.nodes()[index].op);
  }
  add_loss();
  for (auto backward = backward_.rbegin(); backward != backward_.rend(); ++backward) (*backward)();
}

void Builder::add_loss() {
  const ValueId result = schedule_.add_value(sizeof(StepResult), Home::result);
  SummariseStep summary{.images = spec_.batch.images};
  if (phase_ == Phase::forward_only || graph_.nodes().empty()) {
    schedule_.add([=, scalars = scalars_](const Addresses& at) {
      SummariseStep call = summary;
      call.scalars = at.as<StepScalars>(scalars);
      call.result = at.as<StepResult>(result);
      return call;
    });
    return;
  }
  const auto last = static_cast<NodeId>(graph_.nodes().size()) - 1;
  const auto images = static_cast<std::size_t>(spec_.batch.images);
  const ValueId logits = output(last), loss = new_floats(images);
  const ValueId labels = schedule_.add_value(images * sizeof(std::int32_t), Home::labels);
  const ValueId above = schedule_.add_value(images * sizeof(std::int32_t));
  const ValueId dlogits = needs_gradient(last) ? target(last).value : kNoValue;
  const SoftmaxCrossEntropy entropy{
      .type = type_, .images = spec_.batch.images, .classes = graph_.shape(last).channels};
  schedule_.add([=, scalars = scalars_](const Addresses& at) {
    SoftmaxCrossEntropy call = entropy;
    call.logits = at(logits);
    call.labels = at.as<std::int32_t>(labels);
    call.dlogits = at(dlogits);
    call.loss = at.as<float>(loss);
    call.above = at.as<std::int32_t>(above);
    call.scalars = at.as<StepScalars>(scalars);
    return call;
  });
  schedule_.add([=, scalars = scalars_](const Addresses& at) {
    SummariseStep call = summary;
    call.loss = at.as<float>(loss);
    call.above = at.as<std::int32_t>(above);
    call.scalars = at.as<StepScalars>(scalars);
    call.result = at.as<StepResult>(result);
    return call;
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
  if (waiting_[slot(node)]) {
    const Normalised norm = *std::exchange(waiting_[slot(node)], std::nullopt);
    add_scale_shift(node, false, {norm}, false);
  }
  if (outputs_[slot(node)] == kNoValue) {
    PENSTOCK_ASSERT(node == Graph::kInput);
    set_output(node, image(graph_.input_shape().channels));
  }
  return outputs_[slot(node)];
}

ValueId Builder::image(std::int32_t channels) {
  const BatchSpec& batch = spec_.batch;
  Normalise normalise{.from = batch.pixel,
                      .type = type_,
                      .images = batch.images,
                      .pixels_per_image = std::int64_t{batch.image.height} * batch.image.width,
                      .channels = batch.image.channels,
                      .padded_channels = channels};
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
  ValueId& value = gradient_values_[slot(node)];
  if (value != kNoValue) return {value, true};
  value = new_activation(node);
  return {value, false};
}

void Builder::give(NodeId node, ValueId value, bool keep) {
  if (!needs_gradient(node)) return;
  ValueId& gradient = gradient_values_[slot(node)];
  if (gradient != kNoValue) {
    copy_or_add(node, gradient, value, true);
  } else if (!keep) {
    gradient = value;
  } else {
    gradient = new_activation(node);
    copy_or_add(node, gradient, value, false);
  }
}

void Builder::copy_or_add(NodeId node, ValueId to, ValueId value, bool add) {
  const ScaleShift sum{
      .type = type_, .rows = rows_of(node), .channels = graph_.shape(node).channels};
  schedule_.add([=](const Addresses& at) {
    ScaleShift call = sum;
    call.x = at(value);
    call.residual = add ? at(to) : nullptr;
    call.y = at(to);
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
  const auto buffer = std::find_if(layouts_.buffers.begin(), layouts_.buffers.end(),
                                   [&](const ParameterLayout& layout) {
                                     return layout.spec.node == node && layout.spec.role == role;
                                   });
  PENSTOCK_ASSERT(buffer != layouts_.buffers.end());
  return schedule_.add_value(buffer->count * sizeof(float), Home::running,
                             buffer->offset * sizeof(float));
}

}  // namespace penstock::gpu
