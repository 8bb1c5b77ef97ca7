// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/fusion.h"

#include <cmath>
#include <limits>

#include "trainer/backends/compiler/structure.h"
#include "trainer/backends/gpu/dnn_patterns.h"
#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/layouts.h"

namespace penstock::gpu {
namespace {

/// The library's fused engines require channels in whole vectors.
constexpr std::int64_t kChannelMultiple = 8;
constexpr double kElementBytes = 2, kMaskBytes = 1.0 / 8;

/// One form of a place: its cost and its fusion.
struct Form {
  double cost = 0;
  NodeFusion fusion{};
};

Form cheapest(const std::vector<Form>& forms) { return std::ranges::min(forms, {}, &Form::cost); }

/// Chooses the cheapest form of one convolution. The cost includes everything that depends on the
/// form: the input, the sums of the output, and their backward pass.
class Place {
 public:
  Place(const Graph& graph, const compiler::Structure& structure, NodeId node, std::int32_t images,
        const FusionCosts& costs)
      : graph_(graph),
        structure_(structure),
        node_(node),
        costs_(costs),
        shape_(convolution_shape(graph, node, images, DType::f16)),
        inputs_(
            static_cast<double>(shape_.images * shape_.channels * shape_.height * shape_.width)),
        feeds_norm_(feeds_norm()) {}

  NodeFusion choose() const {
    const Form alone = forward_alone();
    const NodeId input = node_of(node_).inputs.front();
    const std::optional<Shortcut> shortcut = shortcut_of(input);
    if (!shortcut || structure_.first_reader(input) != node_) return alone.fusion;
    return cheapest(*shortcut == Shortcut::none ? behind_norm(alone)
                                                : behind_block(alone, *shortcut))
        .fusion;
  }

  static bool exists(const Graph& graph, NodeId node) {
    const Node& of = graph.nodes()[static_cast<std::size_t>(node)];
    const auto* const op = std::get_if<Conv2d>(&of.op);
    if (op == nullptr || op->groups != 1) return false;
    const ConvolutionShape shape = convolution_shape(graph, node, 1, DType::f16);
    return shape.channels % kChannelMultiple == 0 && shape.filters % kChannelMultiple == 0;
  }

 private:
  const Node& node_of(NodeId node) const { return graph_.nodes()[static_cast<std::size_t>(node)]; }

  /// True if a batch norm is the only reader of the convolution's own output.
  bool feeds_norm() const {
    if (std::get<Conv2d>(node_of(node_).op).bias || !structure_.has_one_reader(node_)) return false;
    return std::holds_alternative<BatchNorm>(node_of(structure_.first_reader(node_)).op);
  }

  /// How `input` is made from batch norms, if it is a ReLU of batch norms.
  std::optional<Shortcut> shortcut_of(NodeId input) const {
    if (input == Graph::kInput || !structure_.is_fused(input)) return std::nullopt;
    const Node& before = node_of(node_of(input).inputs.front());
    if (std::holds_alternative<BatchNorm>(before.op)) return Shortcut::none;
    if (!std::holds_alternative<Add>(before.op)) return std::nullopt;
    const auto norms = std::ranges::count_if(before.inputs, [&](NodeId summand) {
      return summand != Graph::kInput && structure_.waits_for_sum(summand);
    });
    if (norms == 0) return std::nullopt;
    return norms == 2 ? Shortcut::batch_norm : Shortcut::tensor;
  }

  /// The cost of a kernel that passes `count` times over the elements of the input.
  double passes(double count, bool mask = false) const {
    return costs_.kernel(inputs_ * (count * kElementBytes + (mask ? kMaskBytes : 0)));
  }

  /// The cost of a batch norm's backward sums: one kernel sums, another one finishes.
  double sums(double count, bool mask = false) const {
    return passes(count, mask) + costs_.kernel(0);
  }

  Form forward_alone() const {
    const Form plain{costs_.graph(conv_forward(shape_).graph)};
    if (!feeds_norm_) return plain;
    const double outputs = static_cast<double>(shape_.images * shape_.filters *
                                               shape_.out_height() * shape_.out_width());
    return cheapest({{plain.cost + costs_.kernel(outputs * kElementBytes)},
                     {costs_.graph(conv_statistics(shape_).graph), {.statistics = true}}});
  }

  bool adds() const { return !structure_.has_one_reader(node_of(node_).inputs.front()); }
  double backward_data() const {
    return costs_.graph(conv_backward_data(shape_, adds() ? 1.F : 0.F).graph);
  }
  double masked_backward_data(Shortcut shortcut) const {
    return costs_.graph(conv_backward_data_batch_norm(shape_, adds(), shortcut).graph);
  }

  std::vector<Form> behind_norm(const Form& alone) const {
    const double filter = costs_.graph(conv_backward_filter(shape_).graph);
    const double masked = masked_backward_data(Shortcut::none);
    std::vector<Form> forms{
        // Forward: read x, write u and the mask. Backward: read the gradient, x and the mask for
        // the sums.
        {alone.cost + passes(2, true) + filter + backward_data() + sums(2, true), alone.fusion},
        {alone.cost + passes(2) + filter + masked, alone.fusion}};
    forms.back().fusion.masks_gradient = true;
    if (structure_.has_one_reader(node_of(node_).inputs.front())) {
      forms.push_back({costs_.graph(normalised_conv_statistics(shape_).graph) +
                           costs_.graph(normalised_conv_backward_filter(shape_).graph) + masked,
                       {.statistics = feeds_norm_, .normalises = true, .masks_gradient = true}});
    }
    return forms;
  }

  /// The gradient of the weights costs the same in all forms, because u is in memory.
  std::vector<Form> behind_block(const Form& alone, Shortcut shortcut) const {
    const bool dual = shortcut == Shortcut::batch_norm;
    const double fused = costs_.graph(residual_normalised_conv_statistics(shape_, dual).graph);
    const double data = backward_data(), masked = masked_backward_data(shortcut);
    const double second_sums = dual ? sums(2) : 0;
    std::vector<Form> forms{
        // The masked gradient is written, because the shortcut's own backward pass reads it.
        {alone.cost + passes(3, true) + data + sums(3, true) + second_sums, alone.fusion},
        {alone.cost + passes(3) + masked, alone.fusion},
        // Without a mask, the gradient passes the ReLU by the sign of u.
        {fused + data + passes(3) + sums(2) + second_sums,
         {.statistics = feeds_norm_, .ends_block = true}},
        {fused + masked, {.statistics = feeds_norm_, .ends_block = true, .masks_gradient = true}}};
    forms[1].fusion.masks_gradient = true;
    return forms;
  }

  const Graph& graph_;
  const compiler::Structure& structure_;
  const NodeId node_;
  const FusionCosts& costs_;
  const ConvolutionShape shape_;
  const double inputs_;  // elements
  const bool feeds_norm_;
};

/// True for a max pool that can read the batch norm's input instead of the ReLU's output. It never
/// reads more, and the ReLU's output is not written.
bool pools_norm(const Graph& graph, const compiler::Structure& structure, NodeId node) {
  const Node& of = graph.nodes()[static_cast<std::size_t>(node)];
  const auto* const pool = std::get_if<MaxPool>(&of.op);
  if (pool == nullptr || pool->window.kernel_h * pool->window.kernel_w > kNoPlace) return false;
  const NodeId input = of.inputs.front();
  if (input == Graph::kInput || !structure.is_fused(input) || !structure.has_one_reader(input)) {
    return false;
  }
  const NodeId before = graph.nodes()[static_cast<std::size_t>(input)].inputs.front();
  return std::holds_alternative<BatchNorm>(graph.nodes()[static_cast<std::size_t>(before)].op);
}

}  // namespace

FusionPlan plan_fusion(const Graph& graph, std::int32_t images, const FusionCosts& costs) {
  const compiler::Structure structure(graph);
  std::vector<NodeFusion> nodes(graph.nodes().size());
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    const auto node = static_cast<NodeId>(index);
    if (Place::exists(graph, node)) {
      nodes[index] = Place(graph, structure, node, images, costs).choose();
    } else {
      nodes[index].normalises = pools_norm(graph, structure, node);
    }
  }
  return FusionPlan(std::move(nodes));
}

std::optional<NodeId> plan_stem(const Graph& graph, std::int32_t images, DType dtype,
                                const FusionCosts& costs) {
  for (std::size_t index = 0; index < graph.nodes().size(); ++index) {
    const auto node = static_cast<NodeId>(index);
    if (!can_read_blocks(graph, node)) continue;
    const auto cost_of = [&](const ConvolutionShape& shape) {
      return costs.graph(conv_forward(shape).graph) +
             costs.graph(conv_backward_filter(shape).graph);
    };
    const ConvolutionShape plain = convolution_shape(graph, node, images, dtype);
    const double cost = cost_of(over_blocks(plain));
    return std::isfinite(cost) && cost <= cost_of(plain) ? std::optional(node) : std::nullopt;
  }
  return std::nullopt;
}

FusionCosts fuse_all(std::function<bool(const DnnGraph& graph)> has_engine) {
  return {.graph =
              [has_engine = std::move(has_engine)](const DnnGraph& graph) {
                return has_engine(graph) ? 0 : std::numeric_limits<double>::infinity();
              },
          .kernel = [](double bytes) { return bytes; }};
}

}  // namespace penstock::gpu
