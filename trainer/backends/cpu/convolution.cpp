// SPDX-License-Identifier: Apache-2.0
// Adds convolutions to a schedule; see builder.h.
//
// oneDNN's AMX convolutions of version 2.6 are slow backward. Three ways around them, for
// convolutions of 1x1 with channels last, whose arithmetic is a product of matrices:
//  - The gradient of the weights is the one of a linear layer over all pixels.
//  - The gradient of the input is a forward convolution with transposed weights.
//  - A stride first takes every second pixel. The rest is a convolution without a stride.
#include <string_view>
#include <utility>

#include "trainer/backends/cpu/builder.h"
#include "trainer/backends/cpu/descriptors.h"
#include "trainer/backends/cpu/kernels.h"

namespace penstock::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

memory::desc bias_of(const Conv2d& op) {
  return op.bias ? memory::desc({op.channels}, Type::f32, Tag::a) : memory::desc();
}

bool is_slow(const dnnl::primitive_desc_base& desc) {
  return std::string_view(desc.impl_info_str()).starts_with("jit:avx512_core_amx");
}

}  // namespace

void Builder::visit(NodeId node, const Conv2d& op) {
  const NodeId input = input_of(node);
  const std::size_t filter = parameter(node, Role::weight);
  const Desc in = requested(input), out = requested(node);
  const Desc filters = any(layouts_.parameters[filter].plain, type_);
  const auto forward = onednn::forward<dnnl::convolution_forward>(
      engine_, attributes(fuses_relu(node)), forward_kind(), convolution_, in, filters, bias_of(op),
      out, strides(op.window), begin(op.window), end(op.window));
  if (trains() && multiplies_matrices(node, op, forward)) return convolve_pixels(node, op);
  const ValueId source = input_as(input, forward.src_desc());
  if (trains()) convolve_backward(node, op, forward, source);  // decides the filter's layout
  convolve(node, op, forward, source);
}

void Builder::convolve(NodeId node, const Conv2d& op,
                       const dnnl::convolution_forward::primitive_desc& forward, ValueId source) {
  const ValueId result = schedule_.add_value(forward.dst_desc());
  std::vector<Schedule::Argument> arguments{
      {DNNL_ARG_SRC, source, {}},
      {DNNL_ARG_WEIGHTS, weight_as(parameter(node, Role::weight), forward.weights_desc()), {}},
      {DNNL_ARG_DST, result, {}}};
  if (op.bias) arguments.push_back({DNNL_ARG_BIAS, weight(parameter(node, Role::bias)), {}});
  run(forward, std::move(arguments));
  set_output(last_of(node), result);
}

void Builder::convolve_backward(NodeId node, const Conv2d& op,
                                const dnnl::convolution_forward::primitive_desc& forward,
                                ValueId source) {
  const NodeId input = input_of(node);
  const std::size_t filter = parameter(node, Role::weight);
  const Desc in = requested(input), out = requested(node);
  const Desc plain = layouts_.parameters[filter].plain;
  const Desc filters = layouts_.fixed ? layouts_.parameters[filter].arena : any(plain);
  const auto weights = onednn::backward<dnnl::convolution_backward_weights>(
      engine_, attributes(false), forward, convolution_, in, filters, bias_of(op), out,
      strides(op.window), begin(op.window), end(op.window));
  set_layout(filter, weights.diff_weights_desc());
  using Data = dnnl::convolution_backward_data;
  const bool back = needs_gradient(input);
  Data::primitive_desc data;
  if (back) {
    data = onednn::backward<Data>(engine_, attributes(false), forward, convolution_, in,
                                  any(plain, type_), out, strides(op.window), begin(op.window),
                                  end(op.window));
  }
  reverse([=, this] {
    if (!has_gradient(last_of(node))) return;
    const ValueId mask = fuses_relu(node) ? output(last_of(node)) : kNoValue;
    const ValueId gradient_out =
        gradient_of(last_of(node), back ? data.diff_dst_desc() : weights.diff_dst_desc(), mask);
    std::vector<Schedule::Argument> arguments{
        {DNNL_ARG_SRC, as(source, weights.src_desc()), {}},
        {DNNL_ARG_DIFF_DST, as(gradient_out, weights.diff_dst_desc()), {}},
        {DNNL_ARG_DIFF_WEIGHTS, gradient(filter), {}}};
    if (op.bias) {
      arguments.push_back({DNNL_ARG_DIFF_BIAS, gradient(parameter(node, Role::bias)), {}});
    }
    run(weights, std::move(arguments));
    schedule_.completes(filter);
    if (op.bias) schedule_.completes(parameter(node, Role::bias));
    if (!back) return;
    const ValueId gradient_in = schedule_.add_value(data.diff_src_desc());
    run(data, {{DNNL_ARG_DIFF_DST, gradient_out, {}},
               {DNNL_ARG_WEIGHTS, weight_as(filter, data.weights_desc()), {}},
               {DNNL_ARG_DIFF_SRC, gradient_in, {}}});
    contribute(input, gradient_in);
  });
}

// ---- convolutions that are products of matrices ------------------------------

bool Builder::multiplies_matrices(NodeId node, const Conv2d& op,
                                  const dnnl::convolution_forward::primitive_desc& forward) const {
  constexpr std::int32_t kVector = 16;
  const Window& window = op.window;
  const std::int32_t inputs = graph_.shape(input_of(node)).channels;
  if (window.kernel_h != 1 || window.kernel_w != 1 || window.top != 0 || window.left != 0 ||
      op.groups != 1 || inputs % kVector != 0 || op.channels % kVector != 0) {
    return false;
  }
  const NodeId input = input_of(node);
  const Desc in = activation(input, Tag::nhwc), out = activation(node, Tag::nhwc);
  if (forward.src_desc() != in || forward.dst_desc() != out) return false;
  if (channels_last_) return true;
  return is_slow(onednn::backward<dnnl::convolution_backward_weights>(
      engine_, attributes(false), forward, convolution_, in,
      any(layouts_.parameters[parameter(node, Role::weight)].plain), bias_of(op), out,
      strides(window), begin(window), end(window)));
}

ValueId Builder::strided(NodeId node, const Conv2d& op, ValueId value, const Desc& target,
                         bool back) {
  const ImageShape whole = graph_.shape(input_of(node)), part = graph_.shape(node);
  const StridedPixels pixels{.images = spec_.batch.images,
                             .height = whole.height,
                             .width = whole.width,
                             .taken_height = part.height,
                             .taken_width = part.width,
                             .stride = op.window.stride,
                             .bytes = size_of(dtype_) * static_cast<std::size_t>(whole.channels)};
  const ValueId result = schedule_.add_value(target);
  schedule_.add_kernel(
      [pixels, back](const RunState&, std::span<std::byte* const> at) {
        if (back) {
          spread_pixels(pixels, at[0], at[1]);
        } else {
          take_pixels(pixels, at[0], at[1]);
        }
      },
      {value, result});
  return result;
}

void Builder::convolve_pixels(NodeId node, const Conv2d& op) {
  const NodeId input = input_of(node);
  const std::size_t filter = parameter(node, Role::weight);
  const ImageShape shape = graph_.shape(node);
  const std::int64_t inputs = graph_.shape(input).channels, outputs = op.channels;
  const std::int64_t images = spec_.batch.images, pixels = images * shape.height * shape.width;
  const Desc whole = activation(input, Tag::nhwc), out = activation(node, Tag::nhwc);
  const Desc in({images, inputs, shape.height, shape.width}, type_, Tag::nhwc);
  const Window window{};  // 1x1
  const auto convolution = [&](dnnl::prop_kind kind, bool relu, const Desc& from, const Desc& to,
                               const memory::dims& weights, const Desc& bias) {
    return onednn::forward<dnnl::convolution_forward>(
        engine_, attributes(relu), kind, convolution_, from, Desc(weights, type_, Tag::any), bias,
        to, strides(window), begin(window), end(window));
  };
  const auto forward =
      convolution(forward_kind(), fuses_relu(node), in, out, {outputs, inputs, 1, 1}, bias_of(op));
  const auto data = convolution(dnnl::prop_kind::forward_inference, false, out, in,
                                {inputs, outputs, 1, 1}, Desc());

  // The same memory as matrices of one row per pixel.
  const memory::dims matrix{outputs, inputs};
  const Desc rows_in({pixels, inputs}, type_, Tag::nc), rows_out({pixels, outputs}, type_, Tag::nc);
  const auto product = onednn::forward<dnnl::inner_product_forward>(
      engine_, attributes(false), forward_kind(), rows_in, Desc(matrix, type_, Tag::any),
      bias_of(op), rows_out);
  const Desc arena = layouts_.fixed ? layouts_.parameters[filter].arena.reshape(matrix)
                                    : Desc(matrix, Type::f32, Tag::any);
  const auto weights = onednn::backward<dnnl::inner_product_backward_weights>(
      engine_, attributes(false), product, rows_in, arena, bias_of(op), rows_out);
  set_layout(filter, weights.diff_weights_desc().reshape({outputs, inputs, 1, 1}));

  const bool skips = op.window.stride > 1;
  ValueId source = input_as(input, whole);
  if (skips) source = strided(node, op, source, in, false);
  convolve(node, op, forward, source);
  reverse([=, this] {
    if (!has_gradient(last_of(node))) return;
    const ValueId mask = fuses_relu(node) ? output(last_of(node)) : kNoValue;
    const ValueId gradient_out = gradient_of(last_of(node), out, mask);
    std::vector<Schedule::Argument> arguments{
        {DNNL_ARG_SRC, source, rows_in},
        {DNNL_ARG_DIFF_DST, gradient_out, rows_out},
        {DNNL_ARG_DIFF_WEIGHTS, gradient(filter), weights.diff_weights_desc()}};
    if (op.bias) {
      arguments.push_back({DNNL_ARG_DIFF_BIAS, gradient(parameter(node, Role::bias)), {}});
    }
    run(weights, std::move(arguments));
    schedule_.completes(filter);
    if (op.bias) schedule_.completes(parameter(node, Role::bias));
    if (!needs_gradient(input)) return;
    const Desc transposed = layouts_.parameters[filter].arena.permute_axes({1, 0, 2, 3});
    ValueId gradient_in = schedule_.add_value(in);
    run(data, {{DNNL_ARG_SRC, gradient_out, {}},
               {DNNL_ARG_WEIGHTS, view_as(weight(filter), transposed, data.weights_desc()), {}},
               {DNNL_ARG_DST, gradient_in, {}}});
    if (skips) gradient_in = strided(node, op, gradient_in, whole, true);
    contribute(input, gradient_in);
  });
}

}  // namespace penstock::cpu
