// SPDX-License-Identifier: Apache-2.0
#include "trainer/graph.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "dataflow/error.h"

namespace penstock {
namespace {

/// Infers shape, parameters and work of a node from its operator and the shapes of its inputs.
class Inference {
 public:
  Inference(const std::string& name, std::span<const ImageShape> inputs)
      : name_(name), inputs_(inputs) {}

  ImageShape shape{};
  std::int64_t parameters = 0;
  double macs = 0;

  void operator()(const Conv2d& op) {
    const ImageShape in = only_input();
    if (op.channels < 1 || op.groups < 1 || in.channels % op.groups != 0 ||
        op.channels % op.groups != 0) {
      fail(fmt::format("channels {} -> {} do not divide into {} groups", in.channels, op.channels,
                       op.groups));
    }
    shape = slide(op.window, op.channels);
    const std::int64_t taps =
        std::int64_t{op.window.kernel_h} * op.window.kernel_w * (in.channels / op.groups);
    parameters = taps * op.channels + (op.bias ? op.channels : 0);
    macs = static_cast<double>(taps) * static_cast<double>(shape.elements());
  }
  void operator()(const BatchNorm&) {
    shape = only_input();
    parameters = 2 * std::int64_t{shape.channels};
  }
  void operator()(const Relu&) { shape = only_input(); }
  void operator()(const Dropout& op) {
    if (!(op.rate >= 0 && op.rate < 1)) fail("the rate must be in [0, 1)");
    shape = only_input();
  }
  void operator()(const Lrn& op) {
    if (op.size < 1 || op.size % 2 == 0) fail("needs an odd size");
    shape = only_input();
  }
  void operator()(const MaxPool& op) { shape = slide(op.window, only_input().channels); }
  void operator()(const AvgPool& op) { shape = slide(op.window, only_input().channels); }
  void operator()(const GlobalAvgPool&) { shape = {1, 1, only_input().channels}; }
  void operator()(const Add&) {
    if (inputs_.size() != 2 || !(inputs_[0] == inputs_[1])) fail("needs two inputs of one shape");
    shape = inputs_[0];
  }
  void operator()(const Concat&) {
    if (inputs_.empty()) fail("needs inputs");
    shape = inputs_[0];
    for (const ImageShape& in : inputs_.subspan(1)) {
      if (in.height != shape.height || in.width != shape.width) {
        fail("needs inputs of one height and width");
      }
      shape.channels += in.channels;
    }
  }
  void operator()(const PadChannels& op) {
    if (op.before < 0 || op.after < 0) fail("cannot pad by a negative number");
    shape = only_input();
    shape.channels += op.before + op.after;
  }
  void operator()(const Linear& op) {
    if (op.features < 1) fail("needs at least one feature");
    const auto in = static_cast<std::int64_t>(only_input().elements());
    shape = {1, 1, op.features};
    parameters = in * op.features + op.features;
    macs = static_cast<double>(in) * op.features;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw ConfigError("model node '{}': {}", name_, reason);
  }
  ImageShape only_input() const {
    if (inputs_.size() != 1) fail(fmt::format("needs one input, has {}", inputs_.size()));
    return inputs_[0];
  }
  ImageShape slide(const Window& window, std::int32_t channels) const {
    const ImageShape in = only_input();
    const std::int32_t room_h = in.height + window.top + window.bottom - window.kernel_h;
    const std::int32_t room_w = in.width + window.left + window.right - window.kernel_w;
    if (window.stride < 1 || room_h < 0 || room_w < 0) {
      fail(fmt::format("a {}x{} window does not fit an image of {}x{}; use larger images",
                       window.kernel_h, window.kernel_w, in.height, in.width));
    }
    return {room_h / window.stride + 1, room_w / window.stride + 1, channels};
  }

  const std::string& name_;
  std::span<const ImageShape> inputs_;
};

ParameterSpec parameter_of(const Node& node, NodeId id, Role role,
                           std::vector<std::int64_t> shape) {
  return {fmt::format("{}.{}", node.name, to_string(role)), id, role, std::move(shape)};
}

}  // namespace

std::string_view to_string(Role role) {
  constexpr std::string_view kNames[] = {"weight", "bias",         "scale",
                                         "shift",  "running_mean", "running_variance"};
  return kNames[static_cast<std::size_t>(role)];
}

std::int64_t ParameterSpec::count() const noexcept {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

NodeId Graph::add(std::string name, const Op& op, std::span<const NodeId> inputs) {
  std::vector<ImageShape> shapes;
  for (const NodeId input : inputs) shapes.push_back(shape(input));
  Inference inference(name, shapes);
  std::visit(inference, op);
  nodes_.push_back(Node{std::move(name),
                        op,
                        {inputs.begin(), inputs.end()},
                        inference.shape,
                        inference.parameters,
                        inference.macs});
  return static_cast<NodeId>(nodes_.size()) - 1;
}

ImageShape Graph::shape(NodeId node) const {
  if (node == kInput) return input_;
  PENSTOCK_ASSERT(node >= 0 && static_cast<std::size_t>(node) < nodes_.size());
  return nodes_[static_cast<std::size_t>(node)].shape;
}

std::int64_t Graph::parameter_count() const noexcept {
  std::int64_t sum = 0;
  for (const Node& node : nodes_) sum += node.parameters;
  return sum;
}

double Graph::forward_macs_per_image() const noexcept {
  double sum = 0;
  for (const Node& node : nodes_) sum += node.forward_macs;
  return sum;
}

std::vector<ParameterSpec> Graph::parameters() const {
  std::vector<ParameterSpec> specs;
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    const Node& node = nodes_[index];
    const auto add = [&](Role role, std::vector<std::int64_t> shape) {
      specs.push_back(parameter_of(node, static_cast<NodeId>(index), role, std::move(shape)));
    };
    const std::int64_t channels = node.shape.channels;
    if (const auto* conv = std::get_if<Conv2d>(&node.op)) {
      const std::int64_t in = shape(node.inputs[0]).channels / conv->groups;
      add(Role::weight, {channels, in, conv->window.kernel_h, conv->window.kernel_w});
      if (conv->bias) add(Role::bias, {channels});
    } else if (std::holds_alternative<Linear>(node.op)) {
      const ImageShape in = shape(node.inputs[0]);
      add(Role::weight, {channels, in.channels, in.height, in.width});
      add(Role::bias, {channels});
    } else if (std::holds_alternative<BatchNorm>(node.op)) {
      add(Role::scale, {channels});
      add(Role::shift, {channels});
    }
  }
  return specs;
}

std::vector<ParameterSpec> Graph::buffers() const {
  std::vector<ParameterSpec> specs;
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    const Node& node = nodes_[index];
    if (!std::holds_alternative<BatchNorm>(node.op)) continue;
    for (const Role role : {Role::running_mean, Role::running_variance}) {
      specs.push_back(parameter_of(node, static_cast<NodeId>(index), role, {node.shape.channels}));
    }
  }
  return specs;
}

}  // namespace penstock
