// SPDX-License-Identifier: Apache-2.0
// Builds convolutions, and linear layers as convolutions whose kernel is as large as their input.
// According to the fusion plan they take over the batch norms around them.
#include <array>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "trainer/backends/gpu/builder.h"

namespace penstock::gpu {

void Builder::visit(NodeId node, const Conv2d& op) {
  const ConvolutionShape shape = convolution_shape(graph_, node, spec_.batch.images, type_);
  convolve(node, reads_blocks(node) ? over_blocks(shape) : shape, op.bias);
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
  ValueId w = parameter(node, Role::weight, short_ ? Home::short_weights : Home::weights);
  if (reads_blocks(node)) {
    const ValueId own = std::exchange(w, new_stem_weights(shape));
    reorder_stem(node, own, w, true);
  }
  const ValueId y = new_activation(node);
  const ValueId x = convolve_forward(node, shape, w, y);
  if (bias || fuses_relu(node)) {
    const ValueId addend = bias ? float_parameter(node, Role::bias) : kNoValue;
    scale_shift(node, {.x = y, .y = y, .addend = addend, .relu = fuses_relu(node)});
  }
  set_output(last_of(node), y);
  if (trains())
    reverse([this, node, shape, bias, x, w] { convolve_backward(node, shape, bias, x, w); });
}

void Builder::convolve_backward(NodeId node, const ConvolutionShape& shape, bool bias, ValueId x,
                                ValueId w) {
  const NodeId last = last_of(node), input = input_of(node);
  const ValueId dy = gradient_of(last);
  if (fuses_relu(node)) relu_backward(last, dy, {dy, false});
  const ValueId dw =
      parameter(node, Role::weight, short_ ? Home::short_gradients : Home::gradients);
  const bool normalises = fusion_.of(node).normalises;
  const Normalised norm = normalises ? activated_[input]->norm : Normalised{};
  DnnPattern filter =
      normalises ? normalised_conv_backward_filter(shape) : conv_backward_filter(shape);
  const ValueId to = reads_blocks(node) ? new_stem_weights(shape) : dw;
  compute(std::move(filter.graph), {{filter.x, x},
                                    {filter.scale, norm.short_multiplier},
                                    {filter.shift, norm.short_addend},
                                    {filter.dy, dy},
                                    {filter.dw, to}});
  if (reads_blocks(node)) reorder_stem(node, dw, to, false);
  completes(node, Role::weight);
  if (bias) add_bias_gradient(node, dy);
  if (!needs_gradient(input)) return;
  if (fusion_.of(node).masks_gradient) {
    masked_backward_data(node, shape, dy, w);
    return;
  }
  const Target dx = target(input);
  DnnPattern data = conv_backward_data(shape, dx.accumulate ? 1.F : 0.F);
  compute(std::move(data.graph), {{data.dy, dy}, {data.w, w}, {data.dx, dx.value}});
}

ValueId Builder::new_stem_weights(const ConvolutionShape& shape) {
  const Window& window = shape.window;
  return schedule_.add_value(static_cast<std::size_t>(shape.filters * shape.channels) *
                             static_cast<std::size_t>(window.kernel_h * window.kernel_w) *
                             size_of(type_));
}

/// The gradient of the row, the column and the channel that only blocks have stays behind.
void Builder::reorder_stem(NodeId node, ValueId own, ValueId blocks, bool to_blocks) {
  const ParameterLayout& layout = layouts_.parameters[layouts_.index_of(node, Role::weight)];
  const ReorderStem shape{.type = type_,
                          .filters = graph_.shape(node).channels,
                          .channels = static_cast<std::int32_t>(layout.padded_channels),
                          .to_blocks = to_blocks};
  schedule_.add([=](const Addresses& at) {
    ReorderStem call = shape;
    call.from = at(to_blocks ? own : blocks);
    call.to = at(to_blocks ? blocks : own);
    return call;
  });
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

// ---- with the batch norms around them -----------------------------------------

/// The two sums are adjacent, as a finishing kernel reads them.
Builder::Sums Builder::new_sums(NodeId node) {
  const auto channels = static_cast<std::size_t>(graph_.shape(node).channels);
  const std::size_t bytes = channels * sizeof(float);
  const ValueId both = new_floats(2 * channels);
  if (fusion_.of(node).statistics) sums_[node] = both;
  return {schedule_.add_part(both, 0, bytes), schedule_.add_part(both, bytes, bytes)};
}

ValueId Builder::convolve_forward(NodeId node, const ConvolutionShape& shape, ValueId w,
                                  ValueId y) {
  const NodeId input = input_of(node);
  const NodeFusion fusion = fusion_.of(node);
  Activated from;
  if (fusion.normalises || fusion.ends_block) {
    from = *activated_[input];
  } else {
    from.norm.x = reads_blocks(node) ? image(kBlockChannels, true)
                  : reads_padded_image(graph_, node)
                      ? image(static_cast<std::int32_t>(shape.channels))
                      : output(input);
  }
  const auto& [norm, other, residual] = from;
  DnnPattern form = fusion.normalises ? normalised_conv_statistics(shape)
                    : fusion.ends_block
                        ? residual_normalised_conv_statistics(shape, other.has_value())
                    : fusion.statistics ? conv_statistics(shape)
                                        : conv_forward(shape);
  const Sums sums = form.sum == kNoTensor ? Sums{} : new_sums(node);
  const ValueId u = fusion.ends_block ? new_activation(input) : norm.x;
  compute(std::move(form.graph), {{form.x, norm.x},
                                  {form.scale, norm.short_multiplier},
                                  {form.shift, norm.short_addend},
                                  {form.residual, other ? other->x : residual},
                                  {form.residual_scale, other ? other->short_multiplier : kNoValue},
                                  {form.residual_shift, other ? other->short_addend : kNoValue},
                                  {form.u, u},
                                  {form.w, w},
                                  {form.y, y},
                                  {form.sum, sums.sum},
                                  {form.square_sum, sums.square_sum}});
  if (fusion.ends_block) set_output(input, u);
  return u;
}

/// Computes the gradient of the input, masked by its ReLU, and the factors of the batch norms
/// before it. All other readers have already added to the gradient.
void Builder::masked_backward_data(NodeId node, const ConvolutionShape& shape, ValueId dy,
                                   ValueId w) {
  const NodeId input = input_of(node);
  const auto& [norm, other, residual] = *activated_[input];
  const Shortcut shortcut = other                  ? Shortcut::batch_norm
                            : residual == kNoValue ? Shortcut::none
                                                   : Shortcut::tensor;
  PENSTOCK_ASSERT(has_gradient(input) != structure_.has_one_reader(input));
  DnnPattern form = conv_backward_data_batch_norm(shape, has_gradient(input), shortcut);
  const ValueId masked = new_activation(input);
  std::vector<Operand> operands{{form.dy, dy},
                                {form.w, w},
                                {form.addend, gradient_of(input)},
                                {form.shortcut, residual},
                                {form.masked, masked}};
  add_norm_operands(form.norm, norm, operands);
  if (other) add_norm_operands(form.shortcut_norm, *other, operands);
  compute(std::move(form.graph), operands);
  for (const Normalised* const of : {&norm, other ? &*other : nullptr}) {
    if (of == nullptr) continue;
    completes(of->node, Role::scale);
    completes(of->node, Role::shift);
  }
  gradient_values_[input] = masked;
}

/// Adds the operands of a norm's backward pass, which completes the gradients of scale and shift.
void Builder::add_norm_operands(const BatchNormTensors& tensors, const Normalised& norm,
                                std::vector<Operand>& operands) {
  const auto channels = static_cast<std::size_t>(graph_.shape(norm.node).channels);
  const Factors factors{new_floats(channels), new_floats(channels), new_floats(channels)};
  const std::array<Operand, 10> all{{{tensors.x, norm.x},
                                     {tensors.mean, norm.mean},
                                     {tensors.inverse_deviation, norm.inverse_deviation},
                                     {tensors.scale, float_parameter(norm.node, Role::scale)},
                                     {tensors.shift, float_parameter(norm.node, Role::shift)},
                                     {tensors.dscale, float_gradient(norm.node, Role::scale)},
                                     {tensors.dshift, float_gradient(norm.node, Role::shift)},
                                     {tensors.dy_factor, factors.dy},
                                     {tensors.x_factor, factors.x},
                                     {tensors.constant, factors.constant}}};
  operands.insert(operands.end(), all.begin(), all.end());
  factors_[norm.node] = factors;
}

}  // namespace penstock::gpu
