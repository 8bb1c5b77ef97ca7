// SPDX-License-Identifier: Apache-2.0
// Batch norm, alone or with the addition and the ReLU behind it: one pass for the sums, one to
// normalise; backward likewise. The ReLU's mask takes a bit an element.
#include <algorithm>
#include <optional>
#include <utility>

#include "trainer/backends/gpu/builder.h"

namespace penstock::gpu {

void Builder::visit(NodeId node, const BatchNorm& op) {
  const Normalised norm = normalise(node, op);
  if (!waits_for_sum(node)) {
    const NodeId last = last_of(node);
    const ValueId mask = add_scale_shift(last, last != node, norm, kNoValue, nullptr);
    if (trains()) reverse([=, this] { batch_norm_backward(last, norm, mask); });
    return;
  }
  waiting_[slot(node)] = norm;
  if (!trains()) return;
  reverse([=, this] {  // unless the addition has done it
    if (has_gradient(node)) batch_norm_backward(node, norm, kNoValue);
  });
}

/// Its only reader is an addition of two different nodes.
bool Builder::waits_for_sum(NodeId node) const {
  if (fuses_relu(node) || readers_[slot(node)] != 1) return false;
  for (std::size_t index = static_cast<std::size_t>(node) + 1; index < graph_.nodes().size();
       ++index) {
    const std::vector<NodeId>& inputs = graph_.nodes()[index].inputs;
    if (std::find(inputs.begin(), inputs.end(), node) == inputs.end()) continue;
    return std::holds_alternative<Add>(graph_.nodes()[index].op) && inputs.size() == 2;
  }
  return false;
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
  const std::int64_t rows = rows_of(node);
  const std::int32_t blocks = sum_blocks(rows, channels);
  const ValueId partial = new_floats(2 * static_cast<std::size_t>(blocks) * count);
  schedule_.add([=, type = type_](const Addresses& at) {
    return BatchNormSums{at(norm.x), at.as<float>(partial), type, rows, channels};
  });
  const BatchNormFinish finish{.blocks = blocks,
                               .type = type_,
                               .rows = rows,
                               .channels = channels,
                               .epsilon = op.epsilon,
                               .momentum = op.momentum};
  schedule_.add([=, trains = trains()](const Addresses& at) {
    BatchNormFinish call = finish;
    call.partial = at.as<float>(partial);
    call.pivot = at(norm.x);
    call.scale = at.as<float>(scale);
    call.shift = at.as<float>(shift);
    call.running_mean = trains ? at.as<float>(running_mean) : nullptr;
    call.running_variance = trains ? at.as<float>(running_variance) : nullptr;
    call.mean = at.as<float>(norm.mean);
    call.inverse_deviation = at.as<float>(norm.inverse_deviation);
    call.multiplier = at.as<float>(norm.multiplier);
    call.addend = at.as<float>(norm.addend);
    return call;
  });
  return norm;
}

/// `other`: what is added, already computed or waiting too; null: nothing.
ValueId Builder::add_scale_shift(NodeId last, bool relu, const Normalised& norm, ValueId residual,
                                 const Normalised* other) {
  const ValueId y = new_activation(last), mask = relu && trains() ? new_mask(last) : kNoValue;
  const ValueId added = other != nullptr ? other->x : residual;
  const ValueId multiplier = other != nullptr ? other->multiplier : kNoValue;
  const ValueId addend = other != nullptr ? other->addend : kNoValue;
  const ScaleShift shape{
      .relu = relu, .type = type_, .rows = rows_of(last), .channels = graph_.shape(last).channels};
  schedule_.add([=](const Addresses& at) {
    ScaleShift call = shape;
    call.x = at(norm.x);
    call.multiplier = at.as<float>(norm.multiplier);
    call.addend = at.as<float>(norm.addend);
    call.residual = at(added);
    call.residual_multiplier = at.as<float>(multiplier);
    call.residual_addend = at.as<float>(addend);
    call.y = at(y);
    call.mask = at.as<std::uint8_t>(mask);
    return call;
  });
  set_output(last, y);
  return mask;
}

/// `norm` is the later one of the two, if both are batch norms.
void Builder::finish_sum(NodeId node, const Normalised& norm, NodeId other) {
  const NodeId last = last_of(node);
  const std::optional<Normalised> other_norm = std::exchange(waiting_[slot(other)], std::nullopt);
  const ValueId residual = other_norm ? kNoValue : output(other);
  const ValueId mask =
      add_scale_shift(last, last != node, norm, residual, other_norm ? &*other_norm : nullptr);
  if (trains()) reverse([=, this] { sum_backward(last, norm, other, mask); });
}

Builder::Factors Builder::batch_norm_factors(const Normalised& norm, ValueId dy, ValueId mask,
                                             ValueId masked) {
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
  return factors;
}

void Builder::apply_factors(const Normalised& norm, const Factors& factors, ValueId dy,
                            ValueId mask) {
  const NodeId input = input_of(norm.node);
  if (!needs_gradient(input)) return;
  const Target dx = target(input);
  const BatchNormBackwardApply shape{.accumulate = dx.accumulate,
                                     .type = type_,
                                     .rows = rows_of(norm.node),
                                     .channels = graph_.shape(norm.node).channels};
  schedule_.add([=](const Addresses& at) {
    BatchNormBackwardApply call = shape;
    call.dy = at(dy);
    call.mask = at.as<std::uint8_t>(mask);
    call.x = at(norm.x);
    call.dy_factor = at.as<float>(factors.dy);
    call.x_factor = at.as<float>(factors.x);
    call.constant = at.as<float>(factors.constant);
    call.dx = at(dx.value);
    return call;
  });
}

void Builder::batch_norm_backward(NodeId last, const Normalised& norm, ValueId mask) {
  const ValueId dy = gradient_of(last);
  apply_factors(norm, batch_norm_factors(norm, dy, mask, kNoValue), dy, mask);
}

/// The masked gradient goes to both summands: it is written where the gradient was, and handed on
/// once this batch norm has read it. Another batch norm reads it in its turn.
void Builder::sum_backward(NodeId last, const Normalised& norm, NodeId other, ValueId mask) {
  const ValueId dy = gradient_of(last);
  const Factors factors = batch_norm_factors(norm, dy, mask, mask == kNoValue ? kNoValue : dy);
  apply_factors(norm, factors, dy, kNoValue);
  give(other, dy, false);
}

}  // namespace penstock::gpu
