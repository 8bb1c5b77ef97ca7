// SPDX-License-Identifier: Apache-2.0
// Convolutions that take over the batch norms around them, according to the fusion plan.
#include <array>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "trainer/backends/gpu/builder.h"

namespace penstock::gpu {

/// The two sums are adjacent, as a finishing kernel reads them.
Builder::Sums Builder::new_sums(NodeId node) {
  const auto channels = static_cast<std::size_t>(graph_.shape(node).channels);
  const std::size_t bytes = channels * sizeof(float);
  const ValueId both = new_floats(2 * channels);
  if (fusion_.of(node).statistics) sums_[slot(node)] = both;
  return {schedule_.add_part(both, 0, bytes), schedule_.add_part(both, bytes, bytes)};
}

void Builder::convolve_with_statistics(NodeId node, const ConvolutionShape& shape, ValueId x,
                                       ValueId w, ValueId y) {
  ConvStatistics form = conv_statistics(shape);
  const Sums sums = new_sums(node);
  compute(std::move(form.graph), {{form.x, x},
                                  {form.w, w},
                                  {form.y, y},
                                  {form.sum, sums.sum},
                                  {form.square_sum, sums.square_sum}});
}

void Builder::convolve_normalised(NodeId node, const ConvolutionShape& shape, ValueId w,
                                  ValueId y) {
  const Normalised& norm = activated_[slot(input_of(node))]->norm;
  NormalisedConvStatistics form = normalised_conv_statistics(shape);
  const Sums sums = new_sums(node);
  compute(std::move(form.graph), {{form.x, norm.x},
                                  {form.scale, norm.short_multiplier},
                                  {form.shift, norm.short_addend},
                                  {form.w, w},
                                  {form.y, y},
                                  {form.sum, sums.sum},
                                  {form.square_sum, sums.square_sum}});
}

/// Returns the block's output.
ValueId Builder::convolve_block_end(NodeId node, const ConvolutionShape& shape, ValueId w,
                                    ValueId y) {
  const NodeId input = input_of(node);
  const auto& [norm, other, residual] = *activated_[slot(input)];
  ResidualNormalisedConvStatistics form =
      residual_normalised_conv_statistics(shape, other.has_value());
  const Sums sums = new_sums(node);
  const ValueId u = new_activation(input);
  std::vector<Operand> operands{{form.x, norm.x},
                                {form.scale, norm.short_multiplier},
                                {form.shift, norm.short_addend},
                                {form.residual, other ? other->x : residual},
                                {form.u, u},
                                {form.w, w},
                                {form.y, y},
                                {form.sum, sums.sum},
                                {form.square_sum, sums.square_sum}};
  if (other) {
    operands.emplace_back(form.residual_scale, other->short_multiplier);
    operands.emplace_back(form.residual_shift, other->short_addend);
  }
  compute(std::move(form.graph), operands);
  set_output(input, u);
  return u;
}

void Builder::normalised_backward_filter(NodeId node, const ConvolutionShape& shape, ValueId dy,
                                         ValueId dw) {
  const Normalised& norm = activated_[slot(input_of(node))]->norm;
  NormalisedConvBackwardFilter form = normalised_conv_backward_filter(shape);
  compute(std::move(form.graph), {{form.x, norm.x},
                                  {form.scale, norm.short_multiplier},
                                  {form.shift, norm.short_addend},
                                  {form.dy, dy},
                                  {form.dw, dw}});
}

/// Computes the gradient of the input, masked by its ReLU, and the factors of the batch norms
/// before it. All other readers have already added to the gradient.
void Builder::masked_backward_data(NodeId node, const ConvolutionShape& shape, ValueId dy,
                                   ValueId w) {
  const NodeId input = input_of(node);
  const auto& [norm, other, residual] = *activated_[slot(input)];
  const Shortcut shortcut = other                  ? Shortcut::batch_norm
                            : residual == kNoValue ? Shortcut::none
                                                   : Shortcut::tensor;
  PENSTOCK_ASSERT(has_gradient(input) != structure_.has_one_reader(input));
  ConvBackwardDataBatchNorm form =
      conv_backward_data_batch_norm(shape, has_gradient(input), shortcut);
  const ValueId masked = new_activation(input);
  std::vector<Operand> operands{{form.dy, dy},
                                {form.w, w},
                                {form.addend, gradient_of(input)},
                                {form.shortcut, residual},
                                {form.masked, masked}};
  add_norm_operands(form.norm, norm, operands);
  if (other) add_norm_operands(form.shortcut_norm, *other, operands);
  compute(std::move(form.graph), operands);
  gradient_values_[slot(input)] = masked;
}

/// Adds the operands of a norm's backward pass. It completes the gradients of scale and shift in
/// f32, but does not mark them as completed: in 16-bit types, which alone use these forms, their
/// group is then widened and reported at the end of the backward pass.
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
  factors_[slot(norm.node)] = factors;
}

}  // namespace penstock::gpu
