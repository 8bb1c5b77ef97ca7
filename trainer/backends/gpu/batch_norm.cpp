// SPDX-License-Identifier: Apache-2.0
// Batch norm, alone or with the addition and the ReLU behind it. Forward takes one pass for the
// sums and one pass to normalise; so does backward. The ReLU's mask takes one bit per element.
#include <optional>
#include <utility>

#include "trainer/backends/gpu/builder.h"

namespace penstock::gpu {

void Builder::visit(NodeId node, const BatchNorm& op) {
  const Normalised norm = normalise(node, op);
  if (!structure_.waits_for_sum(node)) {
    const NodeId last = last_of(node);
    const ValueId mask = activate(last, last != node, {norm});
    if (trains()) reverse([=, this] { batch_norm_backward(last, norm, mask); });
    return;
  }
  waiting_[node] = norm;
  if (!trains()) return;
  reverse([=, this] {  // unless the addition has done it
    if (has_gradient(node)) batch_norm_backward(node, norm, kNoValue);
  });
}

Builder::Normalised Builder::normalise(NodeId node, const BatchNorm& op) {
  const NodeId input = input_of(node);
  const std::int32_t channels = graph_.shape(node).channels;
  const auto count = static_cast<std::size_t>(channels);
  const ValueId scale = float_parameter(node, Role::scale);
  const ValueId shift = float_parameter(node, Role::shift);
  Normalised norm{.node = node, .x = output(input)};
  norm.multiplier = new_floats(count);
  norm.addend = new_floats(count);
  const ValueId running_mean = running(node, Role::running_mean);
  const ValueId running_variance = running(node, Role::running_variance);
  if (phase_ == Phase::evaluate) {
    schedule_.add([=, epsilon = op.epsilon](const Addresses& at) {
      return BatchNormFromRunning{at.as<float>(running_mean),
                                  at.as<float>(running_variance),
                                  at.as<float>(scale),
                                  at.as<float>(shift),
                                  epsilon,
                                  at.as<float>(norm.multiplier),
                                  at.as<float>(norm.addend),
                                  channels};
    });
    return norm;
  }
  norm.mean = new_floats(count);
  norm.inverse_deviation = new_floats(count);
  const NodeId last =
      last_of(structure_.waits_for_sum(node) ? structure_.first_reader(node) : node);
  if (const NodeFusion reader = behind(last); reader.normalises || reader.ends_block) {
    norm.short_multiplier = schedule_.add_value(count * size_of(type_));
    norm.short_addend = schedule_.add_value(count * size_of(type_));
  }
  const bool has_sums = sums_[input] != kNoValue;
  const ValueId partial = has_sums ? sums_[input] : batch_norm_sums(node, norm.x);
  const ValueId pivot = has_sums ? kNoValue : norm.x;
  const BatchNormFinish finish{.blocks = has_sums ? 1 : sum_blocks(rows_of(node), channels),
                               .type = type_,
                               .rows = rows_of(node),
                               .channels = channels,
                               .epsilon = op.epsilon,
                               .momentum = op.momentum};
  schedule_.add([=, trains = trains()](const Addresses& at) {
    BatchNormFinish call = finish;
    call.partial = at.as<float>(partial);
    call.pivot = at(pivot);
    call.scale = at.as<float>(scale);
    call.shift = at.as<float>(shift);
    call.running_mean = trains ? at.as<float>(running_mean) : nullptr;
    call.running_variance = trains ? at.as<float>(running_variance) : nullptr;
    call.mean = at.as<float>(norm.mean);
    call.inverse_deviation = at.as<float>(norm.inverse_deviation);
    call.multiplier = at.as<float>(norm.multiplier);
    call.addend = at.as<float>(norm.addend);
    call.short_multiplier = at(norm.short_multiplier);
    call.short_addend = at(norm.short_addend);
    return call;
  });
  return norm;
}

/// Returns the partial sums that BatchNormFinish reads.
ValueId Builder::batch_norm_sums(NodeId node, ValueId x) {
  const std::int64_t rows = rows_of(node);
  const std::int32_t channels = graph_.shape(node).channels;
  const auto blocks = static_cast<std::size_t>(sum_blocks(rows, channels));
  const ValueId partial = new_floats(2 * blocks * static_cast<std::size_t>(channels));
  schedule_.add([=, type = type_](const Addresses& at) {
    return BatchNormSums{at(x), at.as<float>(partial), type, rows, channels};
  });
  return partial;
}

/// Computes the output of `last`, unless the convolution behind it does so. Returns the ReLU's
/// mask, or kNoValue if no operation reads the mask.
ValueId Builder::activate(NodeId last, bool relu, const Activated& from) {
  activated_[last] = from;
  const NodeFusion reader = behind(last);
  if (reader.normalises || reader.ends_block) return kNoValue;
  return add_scale_shift(last, relu, from, relu && trains() && !reader.masks_gradient);
}

ValueId Builder::add_scale_shift(NodeId last, bool relu, const Activated& from, bool wants_mask) {
  const ValueId y = new_activation(last), mask = wants_mask ? new_mask(last) : kNoValue;
  ScaleShiftOperands of{.x = from.norm.x,
                        .y = y,
                        .multiplier = from.norm.multiplier,
                        .addend = from.norm.addend,
                        .residual = from.residual,
                        .mask = mask,
                        .relu = relu};
  if (from.other) {
    of.residual = from.other->x;
    of.residual_multiplier = from.other->multiplier;
    of.residual_addend = from.other->addend;
  }
  scale_shift(last, of);
  set_output(last, y);
  return mask;
}

/// If both are batch norms, `norm` is the later one.
void Builder::finish_sum(NodeId node, const Normalised& norm, NodeId other) {
  const NodeId last = last_of(node);
  Activated from{norm, std::exchange(waiting_[other], std::nullopt)};
  if (!from.other) from.residual = output(other);
  const ValueId mask = activate(last, last != node, from);
  if (trains()) reverse([=, this] { sum_backward(last, from, other, mask); });
}

/// Computes the factors once; a convolution's gradient may have computed them already.
Builder::Factors Builder::batch_norm_factors(const Normalised& norm, ValueId dy, ValueId mask,
                                             ValueId masked) {
  if (factors_[norm.node]) return *factors_[norm.node];
  const std::int64_t rows = rows_of(norm.node);
  const std::int32_t channels = graph_.shape(norm.node).channels;
  const std::int32_t blocks = sum_blocks(rows, channels);
  const auto count = static_cast<std::size_t>(channels);
  const ValueId partial = new_floats(2 * static_cast<std::size_t>(blocks) * count);
  const BatchNormBackwardSums sums{.type = type_, .rows = rows, .channels = channels};
  schedule_.add([=](const Addresses& at) {
    BatchNormBackwardSums call = sums;
    call.dy = at(dy);
    call.mask = at.as<std::uint8_t>(mask);
    call.x = at(norm.x);
    call.mean = at.as<float>(norm.mean);
    call.inverse_deviation = at.as<float>(norm.inverse_deviation);
    call.masked = at(masked);
    call.partial = at.as<float>(partial);
    return call;
  });
  const Factors factors{new_floats(count), new_floats(count), new_floats(count)};
  const ValueId scale = float_parameter(norm.node, Role::scale);
  const ValueId dscale = float_gradient(norm.node, Role::scale);
  const ValueId dshift = float_gradient(norm.node, Role::shift);
  schedule_.add([=](const Addresses& at) {
    return BatchNormBackwardFinish{.partial = at.as<float>(partial),
                                   .blocks = blocks,
                                   .rows = rows,
                                   .channels = channels,
                                   .scale = at.as<float>(scale),
                                   .mean = at.as<float>(norm.mean),
                                   .inverse_deviation = at.as<float>(norm.inverse_deviation),
                                   .dscale = at.as<float>(dscale),
                                   .dshift = at.as<float>(dshift),
                                   .dy_factor = at.as<float>(factors.dy),
                                   .x_factor = at.as<float>(factors.x),
                                   .constant = at.as<float>(factors.constant)};
  });
  completes(norm.node, Role::scale);
  completes(norm.node, Role::shift);
  factors_[norm.node] = factors;
  return factors;
}

void Builder::apply_factors(const Normalised& norm, const Factors& factors, ValueId dy,
                            ValueId mask) {
  const NodeId input = input_of(norm.node);
  if (!needs_gradient(input)) return;
  const Target dx = target(input);
  add_application(norm.node, dy, mask, dx.accumulate, {norm.x, dx.value, factors}, {});
}

/// Both batch norms together read the gradient once.
void Builder::apply_both_factors(const Normalised& norm, const Normalised& other, ValueId dy) {
  const Factors factors = batch_norm_factors(norm, dy, kNoValue, kNoValue);
  const Factors other_factors = batch_norm_factors(other, dy, kNoValue, kNoValue);
  const ValueId dx = target(input_of(norm.node)).value;
  const ValueId other_dx = target(input_of(other.node)).value;
  add_application(norm.node, dy, kNoValue, false, {norm.x, dx, factors},
                  {other.x, other_dx, other_factors});
}

void Builder::add_application(NodeId node, ValueId dy, ValueId mask, bool accumulate,
                              const Application& first, const Application& second) {
  const BatchNormBackwardApply shape{.accumulate = accumulate,
                                     .type = type_,
                                     .rows = rows_of(node),
                                     .channels = graph_.shape(node).channels};
  schedule_.add([=](const Addresses& at) {
    BatchNormBackwardApply call = shape;
    call.dy = at(dy);
    call.mask = at.as<std::uint8_t>(mask);
    call.x = at(first.x);
    call.dy_factor = at.as<float>(first.factors.dy);
    call.x_factor = at.as<float>(first.factors.x);
    call.constant = at.as<float>(first.factors.constant);
    call.dx = at(first.dx);
    call.x2 = at(second.x);
    call.dy_factor2 = at.as<float>(second.factors.dy);
    call.x_factor2 = at.as<float>(second.factors.x);
    call.constant2 = at.as<float>(second.factors.constant);
    call.dx2 = at(second.dx);
    return call;
  });
}

void Builder::batch_norm_backward(NodeId last, const Normalised& norm, ValueId mask) {
  const ValueId dy = gradient_of(last);
  apply_factors(norm, batch_norm_factors(norm, dy, mask, kNoValue), dy, mask);
}

/// Passes the masked gradient to both summands. It is written in place of the gradient, unless the
/// gradient there is masked already. It is passed on after this batch norm has read it. If the
/// other summand is a batch norm, that norm reads it later, or together with this one if the order
/// of gradients does not matter (16 bits).
void Builder::sum_backward(NodeId last, const Activated& from, NodeId other, ValueId mask) {
  const ValueId dy = gradient_of(last);
  const NodeFusion reader = behind(last);
  if (reader.ends_block && !reader.masks_gradient) relu_backward(last, dy, {dy, false});
  const Factors factors = batch_norm_factors(from.norm, dy, mask, mask == kNoValue ? kNoValue : dy);
  const auto sets_gradient_of = [&](NodeId input) {
    return needs_gradient(input) && !has_gradient(input);
  };
  if (from.other && short_) {
    const NodeId x = input_of(from.norm.node), other_x = input_of(from.other->node);
    if (x != other_x && sets_gradient_of(x) && sets_gradient_of(other_x)) {
      apply_both_factors(from.norm, *from.other, dy);
      return;
    }
  }
  apply_factors(from.norm, factors, dy, kNoValue);
  give(other, dy, false);
}

}  // namespace penstock::gpu
