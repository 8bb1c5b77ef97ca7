// SPDX-License-Identifier: Apache-2.0
// DenseNet (Huang et al., "Densely Connected Convolutional Networks", 2016) for CIFAR-10, without
// bottlenecks and without compression, as in tf_cnn_benchmarks. Unlike in the paper, convolutions
// have biases, and those between blocks have a ReLU.
#include <string>

#include "trainer/model.h"
#include "trainer/models/chain.h"

namespace penstock {
namespace {

struct Net {
  std::int32_t layers;  ///< of each of the three blocks
  std::int32_t growth;  ///< channels that each layer adds
};

NodeId add_norm_relu(Graph& graph, const std::string& name, NodeId input) {
  const NodeId norm = graph.add(name + ".bn", BatchNorm{}, {input});
  return graph.add(name + ".relu", Relu{}, {norm});
}

NodeId add_conv(Graph& graph, const std::string& name, NodeId input, std::int32_t channels,
                std::int32_t kernel) {
  const Window window = make_window(kernel, 1, Padding::same);
  return graph.add(name, Conv2d{.channels = channels, .window = window, .bias = true}, {input});
}

NodeId add_block(Graph& graph, const std::string& name, NodeId input, const Net& net) {
  NodeId all = input;
  for (std::int32_t i = 1; i <= net.layers; ++i) {
    const std::string layer = name + "." + std::to_string(i);
    const NodeId ready = add_norm_relu(graph, layer, all);
    const NodeId grown = add_conv(graph, layer + ".conv", ready, net.growth, 3);
    all = graph.add(layer, Concat{}, {all, grown});
  }
  return all;
}

/// Halves the image.
NodeId add_transition(Graph& graph, const std::string& name, NodeId input) {
  const NodeId ready = add_norm_relu(graph, name, input);
  const NodeId conv = add_conv(graph, name + ".conv", ready, graph.shape(input).channels, 1);
  const NodeId relu = graph.add(name + ".conv.relu", Relu{}, {conv});
  return graph.add(name + ".pool", AvgPool{make_window(2, 2, Padding::valid)}, {relu});
}

void add_densenet(Graph& graph, const Net& net, std::int32_t classes) {
  NodeId node = add_conv(graph, "stem.conv", Graph::kInput, 16, 3);
  node = add_block(graph, "block1", node, net);
  node = add_transition(graph, "transition1", node);
  node = add_block(graph, "block2", node, net);
  node = add_transition(graph, "transition2", node);
  node = add_block(graph, "block3", node, net);
  node = add_norm_relu(graph, "final", node);
  Chain(graph, "", node).global_avg_pool().logits(classes);
}

template <Net kNet>
constexpr ModelEntry densenet(std::string_view name, std::string_view summary) {
  return {.name = name,
          .summary = summary,
          .aliases = {},
          .image = {32, 32, 3},
          .batch = 64,
          .classes = 10,
          .min_side = 4,
          .build = [](Graph& graph, std::int32_t classes) { add_densenet(graph, kNet, classes); }};
}

}  // namespace

extern constinit const ModelEntry densenet40_k12_model = densenet<Net{12, 12}>(
    "densenet40_k12", "DenseNet-40, growth 12, CIFAR: 1.0 million parameters");
extern constinit const ModelEntry densenet100_k12_model = densenet<Net{32, 12}>(
    "densenet100_k12", "DenseNet-100, growth 12, CIFAR: 7.0 million parameters");
extern constinit const ModelEntry densenet100_k24_model = densenet<Net{32, 24}>(
    "densenet100_k24", "DenseNet-100, growth 24, CIFAR: 27.2 million parameters");

}  // namespace penstock
