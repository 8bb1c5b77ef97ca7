// SPDX-License-Identifier: Apache-2.0
// Adds batch norm to a schedule; see builder.h. In training it uses the kernels of batch_norm.h if
// they know the layout; else it uses oneDNN's primitive.
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "trainer/backends/cpu/batch_norm.h"
#include "trainer/backends/cpu/builder.h"
#include "trainer/backends/cpu/kernels.h"

namespace penstock::cpu {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

}  // namespace

void Builder::visit(NodeId node, const BatchNorm& op) {
  using Flags = dnnl::normalization_flags;
  const NodeId input = input_of(node);
  const ValueId source = output(input);
  if (trains() && channels_together(node, schedule_.desc(source)) > 0) {
    return normalise_by_rows(node, op);
  }
  Flags flags = Flags::use_scale | Flags::use_shift;
  if (fuses_relu(node)) flags |= Flags::fuse_norm_relu;
  if (phase_ == Phase::evaluate) flags |= Flags::use_global_stats;
  const Desc data = schedule_.desc(source);
  const auto forward = onednn::batch_norm_forward(engine_, attributes(false), forward_kind(), data,
                                                  op.epsilon, flags);
  const ValueId result = schedule_.add_value(data);
  const ValueId scale = weight(parameter(node, Role::scale));
  const ValueId shift = weight(parameter(node, Role::shift));
  const Desc channels({graph_.shape(node).channels}, Type::f32, Tag::a);
  ValueId mean = kNoValue, variance = kNoValue, workspace = kNoValue;
  if (phase_ != Phase::forward_only) {
    const bool batch = trains();
    mean = batch ? schedule_.add_value(channels) : running(node, Role::running_mean);
    variance = batch ? schedule_.add_value(channels) : running(node, Role::running_variance);
  }
  if (trains() && fuses_relu(node)) workspace = schedule_.add_value(forward.workspace_desc());
  run(forward, {{DNNL_ARG_SRC, source, {}},
                {DNNL_ARG_DST, result, {}},
                {DNNL_ARG_SCALE, scale, {}},
                {DNNL_ARG_SHIFT, shift, {}},
                {DNNL_ARG_MEAN, mean, {}},
                {DNNL_ARG_VARIANCE, variance, {}},
                {DNNL_ARG_WORKSPACE, workspace, {}}});
  set_output(last_of(node), result);
  if (!trains()) return;
  update_running_statistics(node, op, mean, variance);
  normalise_backward(node, op, forward, source, mean, variance, workspace);
}

void Builder::update_running_statistics(NodeId node, const BatchNorm& op, ValueId mean,
                                        ValueId variance) {
  const ImageShape shape = graph_.shape(node);
  const std::int64_t count = std::int64_t{spec_.batch.images} * shape.height * shape.width;
  schedule_.add_kernel(
      [count, momentum = op.momentum, channels = shape.channels](const RunState&,
                                                                 std::span<std::byte* const> at) {
        const auto floats = [&](std::size_t i) { return reinterpret_cast<float*>(at[i]); };
        update_running(floats(0), floats(1), momentum, count, floats(2), floats(3), channels);
      },
      {mean, variance, running(node, Role::running_mean), running(node, Role::running_variance)});
}

// ---- batch normalisation by our own kernels ---------------------------------

/// How many channels lie beside each other, if it is a multiple of 16; else 0.
std::int32_t Builder::channels_together(NodeId node, const Desc& layout) const {
  const std::int32_t channels = graph_.shape(node).channels;
  if (channels % kChannelBlock != 0) return 0;
  if (layout == activation(node, Tag::nChw16c)) return kChannelBlock;
  return layout == activation(node, Tag::nhwc) ? channels : 0;
}

BatchNormShape Builder::batch_norm_shape(NodeId node, const Desc& layout) const {
  const ImageShape image = graph_.shape(node);
  return {spec_.batch.images, image.channels, static_cast<std::size_t>(image.height * image.width),
          channels_together(node, layout)};
}

void Builder::normalise_by_rows(NodeId node, const BatchNorm& op) {
  const NodeId input = input_of(node);
  const ValueId source = output(input);
  const Desc data = schedule_.desc(source),
             channels({graph_.shape(node).channels}, Type::f32, Tag::a);
  const ValueId mean = schedule_.add_value(channels), variance = schedule_.add_value(channels);
  const std::size_t scale = parameter(node, Role::scale), shift = parameter(node, Role::shift);
  const bool relu = fuses_relu(node);
  if (structure_.waits_for_sum(node)) {
    waiting_[node] = [=, this](ValueId residual, bool relu_of_sum) {
      return add_normalised(node, op, mean, variance, residual, relu_of_sum);
    };
  } else {
    set_output(last_of(node), add_normalised(node, op, mean, variance, kNoValue, relu));
  }
  reverse([=, this] {
    const ValueId gradient_out = gradient_of(last_of(node), data);
    const ValueId gradient_in = schedule_.add_value(data);
    const BatchNormShape shape = batch_norm_shape(node, data);
    schedule_.add_kernel(
        [=, dtype = dtype_, epsilon = op.epsilon](const RunState&, std::span<std::byte* const> at) {
          const auto floats = [&](std::size_t i) { return reinterpret_cast<float*>(at[i]); };
          batch_norm_backward(dtype, shape, {floats(4), floats(5), epsilon}, relu, at[0], at[1],
                              floats(2), floats(3), at[6], floats(7), floats(8));
        },
        {source, gradient_out, mean, variance, weight(scale), weight(shift), gradient_in,
         gradient(scale), gradient(shift)});
    schedule_.may_overwrite(gradient_in, gradient_out);
    schedule_.completes(scale);
    schedule_.completes(shift);
    contribute(input, gradient_in);
  });
}

ValueId Builder::add_normalised(NodeId node, const BatchNorm& op, ValueId mean, ValueId variance,
                                ValueId residual, bool relu) {
  std::string outer = schedule_.name(name_of(node, "forward"));  // the sum may be visited
  const ValueId source = output(input_of(node));
  const BatchNormShape shape = batch_norm_shape(node, schedule_.desc(source));
  const ValueId result = schedule_.add_value(schedule_.desc(source));
  std::vector<ValueId> operands{source,
                                weight(parameter(node, Role::scale)),
                                weight(parameter(node, Role::shift)),
                                mean,
                                variance,
                                result};
  if (residual != kNoValue) operands.push_back(residual);
  schedule_.add_kernel(
      [=, dtype = dtype_, epsilon = op.epsilon](const RunState&, std::span<std::byte* const> at) {
        const auto floats = [&](std::size_t i) { return reinterpret_cast<float*>(at[i]); };
        batch_norm_forward(dtype, shape, {floats(1), floats(2), epsilon}, relu, at[0],
                           at.size() > 6 ? at[6] : nullptr, floats(3), floats(4), at[5]);
      },
      std::move(operands));
  if (residual != kNoValue) schedule_.may_overwrite(result, residual);
  update_running_statistics(node, op, mean, variance);
  schedule_.name(std::move(outer));
  return result;
}

void Builder::normalise_backward(NodeId node, const BatchNorm& op,
                                 const dnnl::batch_normalization_forward::primitive_desc& forward,
                                 ValueId source, ValueId mean, ValueId variance,
                                 ValueId workspace) {
  using Flags = dnnl::normalization_flags;
  Flags flags = Flags::use_scale | Flags::use_shift;
  if (fuses_relu(node)) flags |= Flags::fuse_norm_relu;
  const Desc data = schedule_.desc(source);
  const auto desc =
      onednn::batch_norm_backward(engine_, attributes(false), forward, data, op.epsilon, flags);
  reverse([=, this] {
    const NodeId input = input_of(node);
    const std::size_t scale = parameter(node, Role::scale), shift = parameter(node, Role::shift);
    const ValueId gradient_out = gradient_of(last_of(node), data);
    const ValueId gradient_in = schedule_.add_value(data);
    run(desc, {{DNNL_ARG_SRC, source, {}},
               {DNNL_ARG_MEAN, mean, {}},
               {DNNL_ARG_VARIANCE, variance, {}},
               {DNNL_ARG_SCALE, weight(scale), {}},
               {DNNL_ARG_SHIFT, onednn::kBackwardTakesShift ? weight(shift) : kNoValue, {}},
               {DNNL_ARG_DIFF_DST, gradient_out, {}},
               {DNNL_ARG_DIFF_SRC, gradient_in, {}},
               {DNNL_ARG_DIFF_SCALE, gradient(scale), {}},
               {DNNL_ARG_DIFF_SHIFT, gradient(shift), {}},
               {DNNL_ARG_WORKSPACE, workspace, {}}});
    schedule_.completes(scale);
    schedule_.completes(shift);
    contribute(input, gradient_in);
  });
}

}  // namespace penstock::cpu
