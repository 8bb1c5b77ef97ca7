// SPDX-License-Identifier: Apache-2.0
// Adds every operator except convolutions and batch norms to a schedule; see builder.h.
#include <utility>

#include "trainer/backends/cpu/builder.h"
#include "trainer/backends/cpu/descriptors.h"
#include "trainer/backends/cpu/kernels.h"

namespace penstock::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

/// oneDNN 2.6's brgemm kernel for the gradient of a linear layer's input reads through a null
/// pointer if that input has fewer channels than a vector has elements. oneDNN does not offer it
/// for plain layouts.
constexpr std::int32_t kLeastBlockedChannels = 16;
memory::desc matrix_layout(const memory::desc& plain, std::int32_t channels, Type type) {
  if (channels >= kLeastBlockedChannels) return any(plain, type);
  return {onednn::dims_of(plain), type, Tag::oihw};
}

}  // namespace

// ---- pooling ----------------------------------------------------------------

void Builder::visit(NodeId node, const MaxPool& op) {
  pool(node, dnnl::algorithm::pooling_max, op.window);
}

void Builder::visit(NodeId node, const AvgPool& op) {
  pool(node,
       op.count_padding ? dnnl::algorithm::pooling_avg_include_padding
                        : dnnl::algorithm::pooling_avg_exclude_padding,
       op.window);
}

void Builder::visit(NodeId node, const GlobalAvgPool&) {
  const ImageShape in = graph_.shape(input_of(node));
  pool(node, dnnl::algorithm::pooling_avg_exclude_padding, {in.height, in.width, 1});
}

void Builder::pool(NodeId node, dnnl::algorithm algorithm, const Window& window) {
  const NodeId input = input_of(node);
  const ValueId source = output(input);
  const Desc in = schedule_.desc(source);
  const onednn::Pool shape{algorithm, strides(window), kernel(window), begin(window), end(window)};
  const auto forward = onednn::pool_forward(engine_, attributes(false), forward_kind(), shape, in,
                                            any(activation(node, Tag::nchw)));
  const ValueId result = schedule_.add_value(forward.dst_desc());
  const bool remembers = trains() && algorithm == dnnl::algorithm::pooling_max;
  const ValueId workspace = remembers ? schedule_.add_value(forward.workspace_desc()) : kNoValue;
  run(forward, {{DNNL_ARG_SRC, source, {}},
                {DNNL_ARG_DST, result, {}},
                {DNNL_ARG_WORKSPACE, workspace, {}}});
  set_output(node, result);
  if (!needs_gradient(input)) return;
  const auto backward =
      onednn::pool_backward(engine_, attributes(false), forward, shape, in, forward.dst_desc());
  reverse([=, this] {
    const ValueId gradient_in = schedule_.add_value(backward.diff_src_desc());
    run(backward, {{DNNL_ARG_DIFF_DST, gradient_of(node, backward.diff_dst_desc()), {}},
                   {DNNL_ARG_DIFF_SRC, gradient_in, {}},
                   {DNNL_ARG_WORKSPACE, workspace, {}}});
    contribute(input, gradient_in);
  });
}

// ---- element-wise -----------------------------------------------------------

void Builder::visit(NodeId node, const Relu&) {
  const NodeId input = input_of(node);
  const ValueId source = output(input);
  const Desc desc = schedule_.desc(source);
  const ValueId result = schedule_.add_value(desc);
  schedule_.add_kernel(
      [dtype = dtype_, n = elements(result)](const RunState&, std::span<std::byte* const> at) {
        relu(dtype, at[0], at[1], n);
      },
      {source, result});
  schedule_.may_overwrite(result, source);
  set_output(node, result);
  reverse([=, this] { contribute(input, gradient_of(node, desc, result)); });
}

void Builder::visit(NodeId node, const Add&) {
  const std::vector<NodeId>& inputs = node_of(node).inputs;
  ValueId result = add_into_batch_norm(node);
  if (result == kNoValue) {
    const ValueId a = output(inputs[0]);
    const ValueId b = as(output(inputs[1]), schedule_.desc(a));
    result = schedule_.add_value(schedule_.desc(a));
    schedule_.add_kernel(
        [dtype = dtype_, n = elements(result), relu = fuses_relu(node)](
            const RunState&, std::span<std::byte* const> at) {
          add(dtype, at[0], at[1], relu, at[2], n);
        },
        {a, b, result});
    schedule_.may_overwrite(result, a);
  }
  const Desc desc = schedule_.desc(result);
  set_output(last_of(node), result);
  reverse([=, this] {
    const ValueId sum = gradient_of(last_of(node), desc, fuses_relu(node) ? result : kNoValue);
    contribute(inputs[0], sum);
    contribute(inputs[1], sum);
  });
}

ValueId Builder::add_into_batch_norm(NodeId node) {
  const std::vector<NodeId>& inputs = node_of(node).inputs;
  for (const std::size_t index : {0U, 1U}) {
    const auto waiting = std::exchange(waiting_[inputs[index]], nullptr);
    if (!waiting) continue;
    const NodeId source = input_of(inputs[index]);
    const Desc desc = schedule_.desc(output(source));
    return waiting(as(output(inputs[1 - index]), desc), fuses_relu(node));
  }
  return kNoValue;
}

void Builder::visit(NodeId node, const Dropout& op) {
  const NodeId input = input_of(node);
  if (!trains() || op.rate == 0) {
    set_output(node, output(input));
    reverse([=, this] { contribute(input, gradient_of(node, activation(node, Tag::nchw))); });
    return;
  }
  const auto drop = [=, this](ValueId from, ValueId to) {
    schedule_.add_kernel(
        [dtype = dtype_, n = elements(to), seed = spec_.seed, node, rate = op.rate](
            const RunState& state, std::span<std::byte* const> at) {
          dropout(dtype, DropoutMask(seed, state.step, node, rate), rate, at[0], at[1], n);
        },
        {from, to});
    schedule_.may_overwrite(to, from);
  };
  const Desc plain = activation(node, Tag::nchw);  // masks count elements in plain order
  const ValueId result = schedule_.add_value(plain);
  drop(as(output(input), plain), result);
  set_output(node, result);
  reverse([=, this] {
    const ValueId gradient_in = schedule_.add_value(plain);
    drop(gradient_of(node, plain), gradient_in);
    contribute(input, gradient_in);
  });
}

void Builder::visit(NodeId node, const Lrn& op) {
  const NodeId input = input_of(node);
  const std::int32_t channels = graph_.shape(node).channels;
  // In 16 bits, oneDNN's gradients are wrong if channels are the last dimension and do not fill
  // whole blocks. Convolutions on CPUs with AMX produce this layout.
  const bool blocked = type_ != memory::data_type::f32 && channels % 16 != 0;
  const ValueId source = blocked ? input_as(input, activation(input, Tag::nChw16c)) : output(input);
  const Desc data = schedule_.desc(source);
  const onednn::Lrn lrn{op.size, op.alpha, op.beta, op.k};
  const auto forward = onednn::lrn_forward(engine_, attributes(false), forward_kind(), lrn, data);
  const ValueId result = schedule_.add_value(forward.dst_desc());
  const bool remembers = trains() && forward.workspace_desc().get_size() > 0;
  const ValueId workspace = remembers ? schedule_.add_value(forward.workspace_desc()) : kNoValue;
  run(forward, {{DNNL_ARG_SRC, source, {}},
                {DNNL_ARG_DST, result, {}},
                {DNNL_ARG_WORKSPACE, workspace, {}}});
  set_output(node, result);
  if (!needs_gradient(input)) return;
  const auto backward = onednn::lrn_backward(engine_, attributes(false), forward, lrn, data);
  reverse([=, this] {
    const ValueId gradient_in = schedule_.add_value(data);
    run(backward, {{DNNL_ARG_SRC, source, {}},
                   {DNNL_ARG_DIFF_DST, gradient_of(node, data), {}},
                   {DNNL_ARG_DIFF_SRC, gradient_in, {}},
                   {DNNL_ARG_WORKSPACE, workspace, {}}});
    contribute(input, gradient_in);
  });
}

// ---- channels ---------------------------------------------------------------

void Builder::visit(NodeId node, const Concat&) {
  const std::vector<NodeId>& inputs = node_of(node).inputs;
  std::vector<Desc> descs;
  std::vector<Schedule::Argument> arguments;
  for (const NodeId input : inputs) {
    const ValueId source = output(input);
    descs.push_back(schedule_.desc(source));
    arguments.push_back({DNNL_ARG_MULTIPLE_SRC + static_cast<int>(arguments.size()), source, {}});
  }
  const auto forward = onednn::concat(engine_, attributes(false), 1, descs);
  const ValueId result = schedule_.add_value(forward.dst_desc());
  arguments.push_back({DNNL_ARG_DST, result, {}});
  run(forward, std::move(arguments));
  set_output(node, result);
  reverse([=, this] {
    // Slices of blocked layouts must begin with a block; plain layouts can be cut anywhere.
    const ValueId whole = gradient_of(node, activation(node, Tag::nhwc));
    const std::int32_t channels = graph_.shape(node).channels;
    std::int32_t first = 0;
    for (const NodeId input : inputs) {
      const ImageShape shape = graph_.shape(input);
      const ValueId part = schedule_.add_value(activation(input, Tag::nhwc));
      const std::size_t pixels = elements(part) / static_cast<std::size_t>(shape.channels);
      schedule_.add_kernel(
          [dtype = dtype_, channels, first, shape, pixels](const RunState&,
                                                           std::span<std::byte* const> at) {
            cut_channels(dtype, at[0], channels, first, at[1], shape.channels, pixels);
          },
          {whole, part});
      contribute(input, part);
      first += shape.channels;
    }
  });
}

void Builder::visit(NodeId node, const PadChannels& op) {
  const NodeId input = input_of(node);
  const std::int32_t narrow = graph_.shape(input).channels, wide = graph_.shape(node).channels;
  const ValueId source = input_as(input, activation(input, Tag::nhwc));
  const ValueId result = schedule_.add_value(activation(node, Tag::nhwc));
  const std::size_t pixels = elements(source) / static_cast<std::size_t>(narrow);
  schedule_.add_kernel(
      [=, dtype = dtype_, first = op.before](const RunState&, std::span<std::byte* const> at) {
        pad_channels(dtype, at[0], narrow, first, at[1], wide, pixels);
      },
      {source, result});
  set_output(node, result);
  reverse([=, this] {
    const ValueId gradient_in = schedule_.add_value(activation(input, Tag::nhwc));
    schedule_.add_kernel(
        [=, dtype = dtype_, first = op.before](const RunState&, std::span<std::byte* const> at) {
          cut_channels(dtype, at[0], wide, first, at[1], narrow, pixels);
        },
        {gradient_of(node, activation(node, Tag::nhwc)), gradient_in});
    contribute(input, gradient_in);
  });
}

// ---- linear -----------------------------------------------------------------

void Builder::visit(NodeId node, const Linear& op) {
  const NodeId input = input_of(node);
  const std::size_t matrix = parameter(node, Role::weight), bias = parameter(node, Role::bias);
  const Desc in = any(activation(input, Tag::nchw));
  const auto layout = [&](Type type) {
    return matrix_layout(layouts_.parameters[matrix].plain, graph_.shape(input).channels, type);
  };
  const Desc bias_desc({op.features}, Type::f32, Tag::a);
  const memory::dims rows{spec_.batch.images, op.features};
  // The output logits are always f32.
  const bool logits = last_of(node) == last_node();
  const Desc out(rows, logits ? Type::f32 : type_, Tag::nc), gradient_rows(rows, type_, Tag::nc);
  const auto forward = onednn::forward<dnnl::inner_product_forward>(
      engine_, attributes(fuses_relu(node)), forward_kind(), in, layout(type_), bias_desc, out);
  using Weights = dnnl::inner_product_backward_weights;
  using Data = dnnl::inner_product_backward_data;
  Weights::primitive_desc weights;
  Data::primitive_desc data;
  const bool back = needs_gradient(input);
  if (trains()) {
    const Desc arena = layouts_.fixed ? layouts_.parameters[matrix].arena : layout(Type::f32);
    weights = onednn::backward<Weights>(engine_, attributes(false), forward, in, arena, bias_desc,
                                        gradient_rows);
    set_layout(matrix, weights.diff_weights_desc());
    if (back) {
      data = onednn::backward<Data>(engine_, attributes(false), forward, in, layout(type_),
                                    gradient_rows);
    }
  }
  const ValueId source = input_as(input, forward.src_desc());
  const ValueId result =
      schedule_.add_value(Desc({rows[0], rows[1], 1, 1}, onednn::type_of(out), Tag::nchw));
  run(forward, {{DNNL_ARG_SRC, source, {}},
                {DNNL_ARG_WEIGHTS, weight_as(matrix, forward.weights_desc()), {}},
                {DNNL_ARG_BIAS, weight(bias), {}},
                {DNNL_ARG_DST, result, out}});
  set_output(last_of(node), result);
  if (!trains()) return;
  reverse([=, this] {
    const ValueId mask = fuses_relu(node) ? result : kNoValue;
    const ValueId gradient_out = gradient_of(last_of(node), activation(node, Tag::nchw), mask);
    run(weights, {{DNNL_ARG_SRC, as(source, weights.src_desc()), {}},
                  {DNNL_ARG_DIFF_DST, gradient_out, gradient_rows},
                  {DNNL_ARG_DIFF_WEIGHTS, gradient(matrix), {}},
                  {DNNL_ARG_DIFF_BIAS, gradient(bias), {}}});
    schedule_.completes(matrix);
    schedule_.completes(bias);
    if (!back) return;
    const ValueId gradient_in = schedule_.add_value(data.diff_src_desc());
    run(data, {{DNNL_ARG_DIFF_DST, gradient_out, gradient_rows},
               {DNNL_ARG_WEIGHTS, weight_as(matrix, data.weights_desc()), {}},
               {DNNL_ARG_DIFF_SRC, gradient_in, {}}});
    contribute(input, gradient_in);
  });
}

}  // namespace penstock::cpu
