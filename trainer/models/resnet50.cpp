// SPDX-License-Identifier: Apache-2.0
// ResNet-50 (He et al., "Deep Residual Learning for Image Recognition", 2015), version 1: the
// stride of a stage lies on the first 1x1 convolution of its first block.
#include <cstdint>
#include <string>

#include "trainer/model.h"

namespace penstock {
namespace {

constexpr Window same(std::int32_t kernel, std::int32_t stride) {
  const std::int32_t pad = kernel / 2;
  return {kernel, kernel, stride, pad, pad, pad, pad};
}

NodeId conv_bn(Graph& graph, const std::string& name, NodeId input, std::int32_t channels,
               std::int32_t kernel, std::int32_t stride) {
  const NodeId conv = graph.add(name + ".conv", Conv2d{channels, same(kernel, stride)}, {input});
  return graph.add(name + ".bn", BatchNorm{}, {conv});
}

NodeId bottleneck(Graph& graph, const std::string& name, NodeId input, std::int32_t channels,
                  std::int32_t stride) {
  const NodeId a = conv_bn(graph, name + ".a", input, channels, 1, stride);
  const NodeId a_relu = graph.add(name + ".a.relu", Relu{}, {a});
  const NodeId b = conv_bn(graph, name + ".b", a_relu, channels, 3, 1);
  const NodeId b_relu = graph.add(name + ".b.relu", Relu{}, {b});
  const NodeId c = conv_bn(graph, name + ".c", b_relu, 4 * channels, 1, 1);
  const bool projects = graph.shape(input).channels != 4 * channels || stride != 1;
  const NodeId shortcut =
      projects ? conv_bn(graph, name + ".shortcut", input, 4 * channels, 1, stride) : input;
  const NodeId sum = graph.add(name + ".add", Add{}, {c, shortcut});
  return graph.add(name + ".relu", Relu{}, {sum});
}

void build(Graph& graph, std::int32_t classes) {
  NodeId node = conv_bn(graph, "stem", Graph::kInput, 64, 7, 2);
  node = graph.add("stem.relu", Relu{}, {node});
  node = graph.add("stem.pool", MaxPool{same(3, 2)}, {node});
  constexpr std::int32_t kBlocks[] = {3, 4, 6, 3};
  for (std::int32_t stage = 0; stage < 4; ++stage) {
    for (std::int32_t block = 0; block < kBlocks[stage]; ++block) {
      const std::string name =
          "stage" + std::to_string(stage + 1) + "." + std::to_string(block + 1);
      node = bottleneck(graph, name, node, 64 << stage, stage > 0 && block == 0 ? 2 : 1);
    }
  }
  node = graph.add("pool", GlobalAvgPool{}, {node});
  graph.add("logits", Linear{classes}, {node});
}

}  // namespace

extern constinit const ModelEntry resnet50_model{
    .name = "resnet50",
    .summary = "ResNet-50, version 1: 25.6 million parameters, 3.86 GMAC an image",
    .batch = 64,
    .build = build,
};

}  // namespace penstock
