// SPDX-License-Identifier: Apache-2.0
// Adds convolutions to a schedule; see builder.h. Two passes backward are not oneDNN's on CPUs with
// AMX, where bf16 activations have their channels last:
//  - The gradient of the weights is our own; see weight_gradient.h.
//  - For 1x1 convolutions, oneDNN 2.6 computes the gradient of the input slowly. Here it is a
//    forward convolution with transposed weights. If there is a stride, the pixels that it visits
//    are copied first, and the convolution over the copy has no stride.
#include <memory>
#include <string_view>
#include <utility>

#include "trainer/backends/cpu/builder.h"
#include "trainer/backends/cpu/descriptors.h"
#include "trainer/backends/cpu/instruction_sets.h"
#include "trainer/backends/cpu/kernels.h"
#include "trainer/backends/cpu/weight_gradient.h"

namespace penstock::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

memory::desc bias_of(const Conv2d& op) {
  return op.bias ? memory::desc({op.channels}, Type::f32, Tag::a) : memory::desc();
}

}  // namespace

/// One convolution of the graph, or the part of it that is left.
struct Builder::Convolution {
  NodeId node;
  Conv2d op;
  ImageShape shape;  ///< of an image of the input
  Desc in, out;
  dnnl::convolution_forward::primitive_desc forward{};
  ValueId source = kNoValue;
  bool takes_pixels = false;  ///< the input is a copy of the pixels that the stride visits
};

void Builder::visit(NodeId node, const Conv2d& op) {
  const NodeId input = input_of(node);
  Convolution conv{node, op, graph_.shape(input), requested(input), requested(node)};
  conv.forward = describe_forward(conv);
  const bool by_pixels = trains() && is_product_of_matrices(conv);
  if (by_pixels) {
    take_pixels(conv);
  } else {
    conv.source = input_as(input, conv.forward.src_desc());
  }
  if (trains()) differentiate(conv, by_pixels);  // decides the layout of the weights
  const ValueId result = schedule_.add_value(conv.forward.dst_desc());
  run(conv.forward, {{DNNL_ARG_SRC, conv.source, {}},
                     {DNNL_ARG_WEIGHTS,
                      weight_as(parameter(node, Role::weight), conv.forward.weights_desc()),
                      {}},
                     {DNNL_ARG_BIAS, op.bias ? weight(parameter(node, Role::bias)) : kNoValue, {}},
                     {DNNL_ARG_DST, result, {}}});
  set_output(last_of(node), result);
}

dnnl::convolution_forward::primitive_desc Builder::describe_forward(const Convolution& conv) const {
  const Window& window = conv.op.window;
  const Desc filters = any(layouts_.parameters[parameter(conv.node, Role::weight)].plain, type_);
  return onednn::forward<dnnl::convolution_forward>(
      engine_, attributes(fuses_relu(conv.node)), forward_kind(), convolution_, conv.in, filters,
      bias_of(conv.op), conv.out, strides(window), begin(window), end(window));
}

dnnl::convolution_backward_data::primitive_desc Builder::describe_input_gradient(
    const Convolution& conv) const {
  const Window& window = conv.op.window;
  const Desc filters = any(layouts_.parameters[parameter(conv.node, Role::weight)].plain, type_);
  return onednn::backward<dnnl::convolution_backward_data>(
      engine_, attributes(false), conv.forward, convolution_, conv.in, filters, conv.out,
      strides(window), begin(window), end(window));
}

void Builder::differentiate(const Convolution& conv, bool by_pixels) {
  const NodeId node = conv.node, input = input_of(node);
  const Pass weights = weight_gradient(conv);
  const bool back = needs_gradient(input);
  Pass data;
  if (back) data = by_pixels ? input_gradient_by_pixels(conv) : input_gradient(conv);
  reverse([=, this] {
    const ValueId mask = fuses_relu(node) ? output(last_of(node)) : kNoValue;
    const ValueId gradient_out =
        gradient_of(last_of(node), back ? data.gradient_out : weights.gradient_out, mask);
    weights.add(as(gradient_out, weights.gradient_out));
    schedule_.completes(parameter(node, Role::weight));
    if (conv.op.bias) schedule_.completes(parameter(node, Role::bias));
    if (back) contribute(input, data.add(gradient_out));
  });
}

// ---- the gradient of the weights ---------------------------------------------

Builder::Pass Builder::weight_gradient(const Convolution& conv) {
  constexpr std::int32_t kTile = 16;
  const ImageShape out = graph_.shape(conv.node);
  const Desc in({spec_.batch.images, conv.shape.channels, conv.shape.height, conv.shape.width},
                type_, Tag::nhwc);
  if (type_ == Type::bf16 && conv.op.groups == 1 && out.channels % kTile == 0 && uses_amx() &&
      conv.forward.src_desc() == in &&
      conv.forward.dst_desc() == activation(conv.node, Tag::nhwc)) {
    return weight_gradient_in_tiles(conv);
  }
  const Window& window = conv.op.window;
  const std::size_t filter = parameter(conv.node, Role::weight);
  const ParameterLayout& layout = layouts_.parameters[filter];
  const auto weights = onednn::backward<dnnl::convolution_backward_weights>(
      engine_, attributes(false), conv.forward, convolution_, conv.in,
      layouts_.fixed ? layout.arena : any(layout.plain), bias_of(conv.op), conv.out,
      strides(window), begin(window), end(window));
  set_layout(filter, weights.diff_weights_desc());
  return {weights.diff_dst_desc(), [=, this](ValueId gradient_out) {
            const ValueId bias =
                conv.op.bias ? gradient(parameter(conv.node, Role::bias)) : kNoValue;
            run(weights, {{DNNL_ARG_SRC, as(conv.source, weights.src_desc()), {}},
                          {DNNL_ARG_DIFF_DST, gradient_out, {}},
                          {DNNL_ARG_DIFF_WEIGHTS, gradient(filter), {}},
                          {DNNL_ARG_DIFF_BIAS, bias, {}}});
            return kNoValue;
          }};
}

Builder::Pass Builder::weight_gradient_in_tiles(const Convolution& conv) {
  const std::size_t filter = parameter(conv.node, Role::weight);
  set_layout(filter,
             Desc(onednn::dims_of(layouts_.parameters[filter].plain), Type::f32, Tag::ohwi));
  const auto tiles = std::make_shared<const WeightGradient>(
      ConvolutionShape{spec_.batch.images, conv.shape, graph_.shape(conv.node), conv.op.window},
      spec_.threads);
  return {activation(conv.node, Tag::nhwc), [=, this](ValueId gradient_out) {
            const auto bytes = static_cast<memory::dim>(tiles->scratch_bytes());
            std::vector<ValueId> operands{conv.source, gradient_out,
                                          schedule_.add_value(Desc({bytes}, Type::u8, Tag::a)),
                                          gradient(filter)};
            if (conv.op.bias) operands.push_back(gradient(parameter(conv.node, Role::bias)));
            schedule_.add_kernel(
                [tiles](const RunState&, std::span<std::byte* const> at) {
                  tiles->run(at[0], at[1], at[2], reinterpret_cast<float*>(at[3]),
                             at.size() > 4 ? reinterpret_cast<float*>(at[4]) : nullptr);
                },
                std::move(operands));
            return kNoValue;
          }};
}

// ---- the gradient of the input -----------------------------------------------

Builder::Pass Builder::input_gradient(const Convolution& conv) {
  const auto data = describe_input_gradient(conv);
  return {data.diff_dst_desc(), [=, this](ValueId gradient_out) {
            const std::size_t filter = parameter(conv.node, Role::weight);
            const ValueId gradient_in = schedule_.add_value(data.diff_src_desc());
            run(data, {{DNNL_ARG_DIFF_DST, gradient_out, {}},
                       {DNNL_ARG_WEIGHTS, weight_as(filter, data.weights_desc()), {}},
                       {DNNL_ARG_DIFF_SRC, gradient_in, {}}});
            return gradient_in;
          }};
}

bool Builder::is_product_of_matrices(const Convolution& conv) const {
  const Window& window = conv.op.window;
  const NodeId input = input_of(conv.node);
  if (window.kernel_h != 1 || window.kernel_w != 1 || window.top != 0 || window.left != 0 ||
      window.bottom != 0 || window.right != 0 || conv.op.groups != 1 || !needs_gradient(input) ||
      conv.forward.src_desc() != activation(input, Tag::nhwc) ||
      conv.forward.dst_desc() != activation(conv.node, Tag::nhwc)) {
    return false;
  }
  if (channels_last_) return true;
  const std::string_view name = describe_input_gradient(conv).impl_info_str();
  return name.starts_with("jit:avx512_core_amx");
}

void Builder::take_pixels(Convolution& conv) {
  const NodeId input = input_of(conv.node);
  conv.source = input_as(input, activation(input, Tag::nhwc));
  conv.takes_pixels = conv.op.window.stride > 1;
  conv.out = activation(conv.node, Tag::nhwc);
  const ImageShape out = graph_.shape(conv.node);
  conv.shape = {out.height, out.width, conv.shape.channels};
  conv.in =
      Desc({spec_.batch.images, conv.shape.channels, out.height, out.width}, type_, Tag::nhwc);
  if (conv.takes_pixels) conv.source = strided(conv, conv.source, conv.in, false);
  conv.op.window = Window{};
  conv.forward = describe_forward(conv);
}

Builder::Pass Builder::input_gradient_by_pixels(const Convolution& conv) {
  const Window window{};
  const onednn::Dims transposed{conv.shape.channels, conv.op.channels, 1, 1};
  const auto data = onednn::forward<dnnl::convolution_forward>(
      engine_, attributes(false), dnnl::prop_kind::forward_inference, convolution_, conv.out,
      Desc(transposed, type_, Tag::any), Desc(), conv.in, strides(window), begin(window),
      end(window));
  return {conv.out, [=, this](ValueId gradient_out) {
            const std::size_t filter = parameter(conv.node, Role::weight);
            const Desc view = layouts_.parameters[filter].arena.permute_axes({1, 0, 2, 3});
            const ValueId gradient_in = schedule_.add_value(conv.in);
            run(data, {{DNNL_ARG_SRC, gradient_out, {}},
                       {DNNL_ARG_WEIGHTS, view_as(weight(filter), view, data.weights_desc()), {}},
                       {DNNL_ARG_DST, gradient_in, {}}});
            if (!conv.takes_pixels) return gradient_in;
            return strided(conv, gradient_in, activation(input_of(conv.node), Tag::nhwc), true);
          }};
}

ValueId Builder::strided(const Convolution& conv, ValueId value, const Desc& target, bool back) {
  const ImageShape whole = graph_.shape(input_of(conv.node)), part = graph_.shape(conv.node);
  const StridedPixels pixels{.images = spec_.batch.images,
                             .height = whole.height,
                             .width = whole.width,
                             .taken_height = part.height,
                             .taken_width = part.width,
                             .stride = std::get<Conv2d>(node_of(conv.node).op).window.stride,
                             .bytes = size_of(dtype_) * static_cast<std::size_t>(whole.channels)};
  const ValueId result = schedule_.add_value(target);
  schedule_.add_kernel(
      [pixels, back](const RunState&, std::span<std::byte* const> at) {
        if (back) {
          spread_pixels(pixels, at[0], at[1]);
        } else {
          cpu::take_pixels(pixels, at[0], at[1]);
        }
      },
      {value, result});
  return result;
}

}  // namespace penstock::cpu
