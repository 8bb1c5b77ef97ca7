// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/cpu/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "dataflow/error.h"
#include "trainer/backends/cpu/kernels.h"
#include "trainer/op_names.h"

namespace penstock::cpu {
namespace {

/// Alignment of parameters in their arenas, in elements: a cache line, also the widest vector.
constexpr std::size_t kAlignment = 64 / sizeof(float);

using dnnl::memory;
using Tag = memory::format_tag;

memory::dims dims_of(const std::vector<std::int64_t>& shape) {
  return {shape.begin(), shape.end()};
}

/// In f32. Convolutions with groups have the groups as first dimension.
memory::desc plain_layout(const ParameterSpec& spec, const Node& node) {
  const auto* conv = std::get_if<Conv2d>(&node.op);
  if (spec.role != Role::weight) return {dims_of(spec.shape), memory::data_type::f32, Tag::a};
  if (conv == nullptr || conv->groups == 1) {
    return {dims_of(spec.shape), memory::data_type::f32, Tag::oihw};
  }
  memory::dims dims{conv->groups, spec.shape[0] / conv->groups, spec.shape[1], spec.shape[2],
                    spec.shape[3]};
  return {dims, memory::data_type::f32, Tag::goihw};
}

}  // namespace

Layouts::Layouts(const Graph& graph)
    : ArenaLayouts(graph, [&](const ParameterSpec& spec) {
        const memory::desc plain =
            plain_layout(spec, graph.nodes()[static_cast<std::size_t>(spec.node)]);
        return ParameterLayout{{spec, 0, plain.get_size() / sizeof(float)}, plain, plain};
      }) {
  place(kAlignment);
}

Builder::Builder(const Graph& graph, const ExecutableSpec& spec, const dnnl::engine& engine,
                 Phase phase, const CpuOptions& options, Layouts& layouts, Schedule& schedule)
    : GraphBuilder(graph, spec, phase),
      engine_(engine),
      convolution_(options.winograd ? dnnl::algorithm::convolution_auto
                                    : dnnl::algorithm::convolution_direct),
      channels_last_(options.channels_last),
      layouts_(layouts),
      schedule_(schedule),
      type_(spec.precision == Precision::bf16 ? memory::data_type::bf16 : memory::data_type::f32),
      dtype_(spec.precision == Precision::bf16 ? DType::bf16 : DType::f32),
      contributions_(graph),
      waiting_(graph),
      weights_(layouts.parameters.size(), kNoValue),
      gradients_(layouts.parameters.size(), kNoValue) {}

void Builder::build() {
  const std::size_t nodes = graph_.nodes().size(), total = trains() ? 2 * nodes : nodes;
  walk(
      [this](NodeId node, const auto& op) {
        node_ = node;
        schedule_.name(name_of(node, "forward"));
        visit(node, op);
      },
      [this] {
        schedule_.name("loss: " + node_of(last_node()).name);
        add_loss();
      },
      [this, total, done = std::size_t{0}]() mutable {
        if (spec_.progress) spec_.progress(++done, total);
      });
  if (!layouts_.fixed) layouts_.place(kAlignment);
  layouts_.fixed = true;
  place_parameters();
  schedule_.plan();
}

std::string Builder::name_of(NodeId node, std::string_view pass) const {
  return fmt::format("{} {}: {}", penstock::name_of(node_of(node).op), pass, node_of(node).name);
}

void Builder::reverse(std::function<void()> backward) {
  GraphBuilder::reverse([this, node = node_, backward = std::move(backward)] {
    schedule_.name(name_of(node, "backward"));
    if (!contributions_[last_of(node)].empty()) backward();
  });
}

void Builder::add_loss() {
  const NodeId last = last_node();
  const std::int32_t classes = graph_.shape(last).channels;
  const Desc plain({spec_.batch.images, classes, 1, 1}, memory::data_type::f32, Tag::nchw);
  const ValueId logits = as(output(last), plain);
  std::vector<ValueId> operands{logits};
  if (trains()) {
    operands.push_back(schedule_.add_value(activation(last, Tag::nchw)));
    contribute(last, operands.back());
  }
  const bool scores_loss = phase_ != Phase::forward_only;
  schedule_.add_kernel(
      [classes, dtype = dtype_, scores_loss](const RunState& state,
                                             std::span<std::byte* const> at) {
        softmax_loss(reinterpret_cast<const float*>(at[0]), state.batch, classes, dtype,
                     at.size() > 1 ? at[1] : nullptr, state.result);
        if (!scores_loss) state.result.loss = 0;
      },
      std::move(operands));
}

// ---- values -----------------------------------------------------------------

Builder::Desc Builder::activation(NodeId node, Tag tag) const {
  const ImageShape shape = graph_.shape(node);
  return {{spec_.batch.images, shape.channels, shape.height, shape.width}, type_, tag};
}

Builder::Desc Builder::requested(NodeId node) const {
  return activation(node, channels_last_ ? Tag::nhwc : Tag::any);
}

ValueId Builder::output(NodeId node) {
  if (auto waiting = std::exchange(waiting_[node], nullptr)) {
    set_output(node, waiting(kNoValue, false));
  }
  if (outputs_[node] == kNoValue) {
    PENSTOCK_ASSERT(node == Graph::kInput);
    return image(activation(node, Tag::nhwc));
  }
  return outputs_[node];
}

/// The first reader decides which of the two plain layouts the converted pixels have.
ValueId Builder::image(const Desc& target) {
  const Desc planar = activation(Graph::kInput, Tag::nchw);
  const bool is_planar = target == planar;
  const ValueId pixels =
      schedule_.add_value(is_planar ? planar : activation(Graph::kInput, Tag::nhwc));
  set_output(Graph::kInput, pixels);
  std::string outer = schedule_.name("normalise: pixels");
  schedule_.add_kernel(
      [spec = spec_.batch, dtype = dtype_, is_planar](const RunState& state,
                                                      std::span<std::byte* const> at) {
        normalise(dtype, state.batch.pixels.data(), spec, state.batch.valid, is_planar, at[0]);
      },
      {pixels});
  schedule_.name(std::move(outer));
  return pixels;
}

ValueId Builder::as(ValueId value, const Desc& target) {
  return view_as(value, schedule_.desc(value), target);
}

ValueId Builder::view_as(ValueId value, const Desc& view, const Desc& target) {
  if (view == target) return value;
  const ValueId result = schedule_.add_value(target);
  const dnnl::reorder::primitive_desc desc(engine_, view, engine_, target, attributes(false));
  std::string outer = schedule_.name("reorder: " + node_of(node_).name);
  run(desc, {{DNNL_ARG_FROM, value, view}, {DNNL_ARG_TO, result, {}}});
  schedule_.name(std::move(outer));
  return result;
}

ValueId Builder::input_as(NodeId node, const Desc& target) {
  if (node == Graph::kInput && outputs_[node] == kNoValue) image(target);
  return as(output(node), target);
}

std::size_t Builder::elements(ValueId value) const {
  return schedule_.desc(value).get_size() / size_of(dtype_);
}

void Builder::run(const dnnl::primitive_desc_base& desc,
                  std::vector<Schedule::Argument> arguments) {
  std::erase_if(arguments, [](const auto& argument) { return argument.value == kNoValue; });
  schedule_.add_primitive(dnnl::primitive(desc.get()), std::move(arguments),
                          desc.scratchpad_desc());
}

dnnl::primitive_attr Builder::attributes(bool relu) const {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) attributes.set_post_ops(onednn::relu_behind());
  return attributes;
}

// ---- gradients --------------------------------------------------------------

void Builder::contribute(NodeId node, ValueId gradient) {
  if (needs_gradient(node)) contributions_[node].push_back(gradient);
}

ValueId Builder::gradient_of(NodeId node, const Desc& target, ValueId mask) {
  constexpr std::size_t kTerms = 4;  // limit of masked_sum()
  std::vector<ValueId> terms = contributions_[node];
  if (terms.size() == 1 && mask == kNoValue) return as(terms[0], target);
  const Desc common = mask == kNoValue ? schedule_.desc(terms[0]) : schedule_.desc(mask);
  for (ValueId& term : terms) term = as(term, common);
  for (;;) {
    const std::size_t count = std::min(kTerms, terms.size());
    const bool masks = count == terms.size() && mask != kNoValue;
    std::vector<ValueId> operands(terms.begin(),
                                  terms.begin() + static_cast<std::ptrdiff_t>(count));
    const ValueId sum = schedule_.add_value(common);
    if (masks) operands.push_back(mask);
    operands.push_back(sum);
    schedule_.add_kernel(
        [dtype = dtype_, count, masks, n = elements(sum)](const RunState&,
                                                          std::span<std::byte* const> at) {
          std::array<const void*, kTerms> from{};
          std::copy_n(at.begin(), count, from.begin());
          masked_sum(dtype, std::span(from).first(count), masks ? at[count] : nullptr, at.back(),
                     n);
        },
        std::move(operands));
    schedule_.may_overwrite(sum, terms[0]);
    terms.erase(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(count));
    if (terms.empty()) return as(sum, target);
    terms.insert(terms.begin(), sum);
  }
}

// ---- parameters -------------------------------------------------------------

void Builder::set_layout(std::size_t parameter, const Desc& desc) {
  if (layouts_.fixed) return;
  layouts_.parameters[parameter].arena = desc;
  layouts_.parameters[parameter].count = desc.get_size() / sizeof(float);
}

ValueId Builder::weight(std::size_t parameter) {
  if (weights_[parameter] == kNoValue) {
    weights_[parameter] = schedule_.add_value(layouts_.parameters[parameter].arena, Home::weights);
  }
  return weights_[parameter];
}

ValueId Builder::gradient(std::size_t parameter) {
  if (gradients_[parameter] == kNoValue) {
    gradients_[parameter] =
        schedule_.add_value(layouts_.parameters[parameter].arena, Home::gradients);
  }
  return gradients_[parameter];
}

ValueId Builder::running(NodeId node, Role role) {
  const ParameterLayout& buffer = layouts_.buffer_of(node, role);
  return schedule_.add_value(buffer.plain, Home::running, buffer.offset * sizeof(float));
}

ValueId Builder::weight_as(std::size_t parameter, const Desc& target) {
  return as(weight(parameter), target);
}

void Builder::place_parameters() {
  for (std::size_t index = 0; index < layouts_.parameters.size(); ++index) {
    for (const ValueId value : {weights_[index], gradients_[index]}) {
      if (value != kNoValue)
        schedule_.set_offset(value, layouts_.parameters[index].offset * sizeof(float));
    }
  }
}

}  // namespace penstock::cpu
