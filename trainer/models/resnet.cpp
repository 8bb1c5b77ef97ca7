// SPDX-License-Identifier: Apache-2.0
// Residual nets, as in tf_cnn_benchmarks. All have convolutions without bias, and a stem of
// convolution, batch norm and ReLU.
//   v1    (He et al., "Deep Residual Learning for Image Recognition", 2015): a batch norm follows
//         each convolution, a ReLU follows the sum. In a bottleneck the first 1x1 convolution has
//         the stride.
//   v1.5  v1, but in a bottleneck the 3x3 convolution has the stride. In blocks of two 3x3
//         convolutions v1 and v1.5 are equal.
//   v2    (He et al., "Identity Mappings in Deep Residual Networks", 2016): batch norm and ReLU
//         come before each convolution; those before the first one also feed the projection, which
//         has no batch norm. One more pair follows the last block. The first 1x1 convolution has
//         the stride, as in v1.
// The nets of tensorflow/models, official_resnet*, differ: the 3x3 convolution has the stride in
// all of them; each stage begins with a projection even if the shape stays (so the nets of two 3x3
// convolutions have one more); and in v2 the stem is only a convolution.
// For CIFAR, shortcuts that change the shape skip pixels and pad with channels of zeros (the
// paper's option A). tf_cnn_benchmarks leaves out the stem's ReLU in v1; the paper has it.
#include <array>
#include <string>
#include <vector>

#include "trainer/model.h"
#include "trainer/models/chain.h"

namespace penstock {
namespace {

enum class Version : std::uint8_t { v1, v1_5, v2 };
enum class Family : std::uint8_t { imagenet, official, cifar };
enum class Block : std::uint8_t { basic, bottleneck };

struct Net {
  Family family;
  Version version;
  Block block;
  std::array<std::int32_t, 4> depths;  ///< blocks of each stage; nets for CIFAR have three
};

/// A convolution of a block.
struct Layer {
  std::int32_t kernel, channels, stride;
};

NodeId add_conv(Graph& graph, const std::string& name, NodeId input, const Layer& layer) {
  const Window window = make_window(layer.kernel, layer.stride, Padding::same);
  return graph.add(name + ".conv", Conv2d{.channels = layer.channels, .window = window}, {input});
}

NodeId add_norm(Graph& graph, const std::string& name, NodeId input) {
  return graph.add(name + ".bn", BatchNorm{}, {input});
}

NodeId add_relu(Graph& graph, const std::string& name, NodeId input) {
  return graph.add(name + ".relu", Relu{}, {input});
}

NodeId add_norm_relu(Graph& graph, const std::string& name, NodeId input) {
  return add_relu(graph, name, add_norm(graph, name, input));
}

std::vector<Layer> layers_of(const Net& net, std::int32_t channels, std::int32_t stride) {
  if (net.block == Block::basic) return {{3, channels, stride}, {3, channels, 1}};
  const bool late = net.version == Version::v1_5 || net.family == Family::official;
  return {{1, channels, late ? 1 : stride}, {3, channels, late ? stride : 1}, {1, 4 * channels, 1}};
}

/// `ready` is the input of the first convolution: in v2 the activated input.
NodeId add_shortcut(Graph& graph, const std::string& name, const Net& net, NodeId input,
                    NodeId ready, const Layer& projection) {
  const std::string prefix = name + ".shortcut";
  if (net.family == Family::cifar) {
    const NodeId skipped = graph.add(
        prefix + ".pool", AvgPool{make_window(1, projection.stride, Padding::valid)}, {input});
    const std::int32_t missing = projection.channels - graph.shape(input).channels;
    return graph.add(prefix + ".pad", PadChannels{missing / 2, missing - missing / 2}, {skipped});
  }
  const NodeId conv = add_conv(graph, prefix, ready, projection);
  return net.version == Version::v2 ? conv : add_norm(graph, prefix, conv);
}

NodeId add_block(Graph& graph, const std::string& name, const Net& net, NodeId input,
                 std::int32_t channels, std::int32_t stride, bool first) {
  const bool activates_first = net.version == Version::v2;
  const NodeId ready = activates_first ? add_norm_relu(graph, name + ".pre", input) : input;
  const std::vector<Layer> layers = layers_of(net, channels, stride);
  NodeId node = ready;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string layer = name + "." + static_cast<char>('a' + i);
    const bool last = i + 1 == layers.size();
    node = add_conv(graph, layer, node, layers[i]);
    if (!last || !activates_first) node = add_norm(graph, layer, node);
    if (!last) node = add_relu(graph, layer, node);
  }
  const Layer projection{1, layers.back().channels, stride};
  const bool changes = stride != 1 || graph.shape(input).channels != projection.channels;
  const NodeId shortcut = changes || (first && net.family == Family::official)
                              ? add_shortcut(graph, name, net, input, ready, projection)
                              : input;
  const NodeId sum = graph.add(name + ".add", Add{}, {node, shortcut});
  return activates_first ? sum : add_relu(graph, name, sum);
}

NodeId add_stem(Graph& graph, const Net& net) {
  const bool small = net.family == Family::cifar;
  const Layer layer = small ? Layer{3, 16, 1} : Layer{7, 64, 2};
  NodeId node = add_conv(graph, "stem", Graph::kInput, layer);
  const bool bare = net.family == Family::official && net.version == Version::v2;
  if (!bare) node = add_norm_relu(graph, "stem", node);
  if (small) return node;
  return graph.add("stem.pool", MaxPool{make_window(3, 2, Padding::same)}, {node});
}

void add_resnet(Graph& graph, const Net& net, std::int32_t classes) {
  NodeId node = add_stem(graph, net);
  const std::int32_t width = graph.shape(node).channels;
  for (std::size_t stage = 0; stage < net.depths.size(); ++stage) {
    for (std::int32_t block = 0; block < net.depths[stage]; ++block) {
      const std::string name =
          "stage" + std::to_string(stage + 1) + "." + std::to_string(block + 1);
      const std::int32_t stride = stage > 0 && block == 0 ? 2 : 1;
      node = add_block(graph, name, net, node, width << stage, stride, block == 0);
    }
  }
  if (net.version == Version::v2) node = add_norm_relu(graph, "final", node);
  node = graph.add("pool", GlobalAvgPool{}, {node});
  graph.add("logits", Linear{classes}, {node});
}

constexpr std::array kDepths18{2, 2, 2, 2}, kDepths34{3, 4, 6, 3},
    kDepths50 = kDepths34, kDepths101{3, 4, 23, 3}, kDepths152{3, 8, 36, 3},
    kDepths200{3, 24, 36, 3};

/// Published for version 1; the versions of a depth are the same model here.
constexpr double p100_img_per_s(const Net& net) {
  if (net.block == Block::basic) return 0;
  return net.depths == kDepths50 ? 219 : net.depths == kDepths152 ? 91.8 : 0;
}

template <Net kNet>
constexpr ModelEntry resnet(std::string_view name, std::int32_t batch, std::string_view summary,
                            std::string_view aliases = {}) {
  constexpr bool kSmall = kNet.family == Family::cifar;
  return {.name = name,
          .summary = summary,
          .aliases = aliases,
          .image = kSmall ? ImageShape{32, 32, 3} : ImageShape{224, 224, 3},
          .batch = batch,
          .classes = kSmall ? 10 : 1000,
          .min_side = kSmall ? 4 : 32,
          .p100_img_per_s = p100_img_per_s(kNet),
          .residual = true,
          .build = [](Graph& graph, std::int32_t classes) { add_resnet(graph, kNet, classes); }};
}

constexpr Net basic(Version version, const std::array<std::int32_t, 4>& depths) {
  return {Family::imagenet, version, Block::basic, depths};
}
constexpr Net bottleneck(Version version, const std::array<std::int32_t, 4>& depths) {
  return {Family::imagenet, version, Block::bottleneck, depths};
}
constexpr Net official(Version version, Block block, const std::array<std::int32_t, 4>& depths) {
  return {Family::official, version, block, depths};
}
/// 6n + 2 layers.
constexpr Net cifar(Version version, std::int32_t n) {
  return {Family::cifar, version, Block::basic, {n, n, n, 0}};
}

}  // namespace

// ---- ImageNet ---------------------------------------------------------------

extern constinit const ModelEntry resnet18_model = resnet<basic(Version::v1, kDepths18)>(
    "resnet18", 32,
    "ResNet-18, versions 1 and 1.5 in one: 11.7 million parameters, 1.81 GMAC an image",
    "resnet18_v1 resnet18_v1.5");
extern constinit const ModelEntry resnet18_v2_model = resnet<basic(Version::v2, kDepths18)>(
    "resnet18_v2", 32, "ResNet-18, version 2: 11.7 million parameters, 1.81 GMAC an image");
extern constinit const ModelEntry resnet34_model = resnet<basic(Version::v1, kDepths34)>(
    "resnet34", 32,
    "ResNet-34, versions 1 and 1.5 in one: 21.8 million parameters, 3.66 GMAC an image",
    "resnet34_v1 resnet34_v1.5");
extern constinit const ModelEntry resnet34_v2_model = resnet<basic(Version::v2, kDepths34)>(
    "resnet34_v2", 32, "ResNet-34, version 2: 21.8 million parameters, 3.66 GMAC an image");
extern constinit const ModelEntry resnet50_model = resnet<bottleneck(Version::v1, kDepths50)>(
    "resnet50", 64, "ResNet-50, version 1: 25.6 million parameters, 3.86 GMAC an image",
    "resnet50_v1 tensorpack tfbench");
extern constinit const ModelEntry resnet50_v1_5_model =
    resnet<bottleneck(Version::v1_5, kDepths50)>(
        "resnet50_v1.5", 64, "ResNet-50, version 1.5: 25.6 million parameters, 4.09 GMAC an image");
extern constinit const ModelEntry resnet50_v2_model = resnet<bottleneck(Version::v2, kDepths50)>(
    "resnet50_v2", 64, "ResNet-50, version 2: 25.5 million parameters, 3.86 GMAC an image",
    "ResNet50V2");
extern constinit const ModelEntry resnet101_model = resnet<bottleneck(Version::v1, kDepths101)>(
    "resnet101", 32, "ResNet-101, version 1: 44.5 million parameters, 7.57 GMAC an image",
    "resnet101_v1");
extern constinit const ModelEntry resnet101_v1_5_model =
    resnet<bottleneck(Version::v1_5, kDepths101)>(
        "resnet101_v1.5", 32,
        "ResNet-101, version 1.5: 44.5 million parameters, 7.80 GMAC an image");
extern constinit const ModelEntry resnet101_v2_model = resnet<bottleneck(Version::v2, kDepths101)>(
    "resnet101_v2", 32, "ResNet-101, version 2: 44.5 million parameters, 7.57 GMAC an image",
    "ResNet101V2");
extern constinit const ModelEntry resnet152_model = resnet<bottleneck(Version::v1, kDepths152)>(
    "resnet152", 32, "ResNet-152, version 1: 60.2 million parameters, 11.28 GMAC an image",
    "resnet152_v1");
extern constinit const ModelEntry resnet152_v1_5_model =
    resnet<bottleneck(Version::v1_5, kDepths152)>(
        "resnet152_v1.5", 32,
        "ResNet-152, version 1.5: 60.2 million parameters, 11.51 GMAC an image");
extern constinit const ModelEntry resnet152_v2_model = resnet<bottleneck(Version::v2, kDepths152)>(
    "resnet152_v2", 32, "ResNet-152, version 2: 60.2 million parameters, 11.28 GMAC an image",
    "ResNet152V2 resnet");

// ---- tensorflow/models ------------------------------------------------------

extern constinit const ModelEntry official_resnet18_model =
    resnet<official(Version::v1, Block::basic, kDepths18)>(
        "official_resnet18", 32, "ResNet-18, version 1, of tensorflow/models");
extern constinit const ModelEntry official_resnet18_v2_model =
    resnet<official(Version::v2, Block::basic, kDepths18)>(
        "official_resnet18_v2", 32, "ResNet-18, version 2, of tensorflow/models");
extern constinit const ModelEntry official_resnet34_model =
    resnet<official(Version::v1, Block::basic, kDepths34)>(
        "official_resnet34", 32, "ResNet-34, version 1, of tensorflow/models");
extern constinit const ModelEntry official_resnet34_v2_model =
    resnet<official(Version::v2, Block::basic, kDepths34)>(
        "official_resnet34_v2", 32, "ResNet-34, version 2, of tensorflow/models");
extern constinit const ModelEntry official_resnet50_model =
    resnet<official(Version::v1, Block::bottleneck, kDepths50)>(
        "official_resnet50", 128, "ResNet-50, version 1.5, of tensorflow/models");
extern constinit const ModelEntry official_resnet50_v2_model =
    resnet<official(Version::v2, Block::bottleneck, kDepths50)>(
        "official_resnet50_v2", 128, "ResNet-50, version 2, of tensorflow/models");
extern constinit const ModelEntry official_resnet101_model =
    resnet<official(Version::v1, Block::bottleneck, kDepths101)>(
        "official_resnet101", 32, "ResNet-101, version 1.5, of tensorflow/models");
extern constinit const ModelEntry official_resnet101_v2_model =
    resnet<official(Version::v2, Block::bottleneck, kDepths101)>(
        "official_resnet101_v2", 32, "ResNet-101, version 2, of tensorflow/models");
extern constinit const ModelEntry official_resnet152_model =
    resnet<official(Version::v1, Block::bottleneck, kDepths152)>(
        "official_resnet152", 32, "ResNet-152, version 1.5, of tensorflow/models");
extern constinit const ModelEntry official_resnet152_v2_model =
    resnet<official(Version::v2, Block::bottleneck, kDepths152)>(
        "official_resnet152_v2", 32, "ResNet-152, version 2, of tensorflow/models");
extern constinit const ModelEntry official_resnet200_model =
    resnet<official(Version::v1, Block::bottleneck, kDepths200)>(
        "official_resnet200", 32, "ResNet-200, version 1.5, of tensorflow/models");
extern constinit const ModelEntry official_resnet200_v2_model =
    resnet<official(Version::v2, Block::bottleneck, kDepths200)>(
        "official_resnet200_v2", 32, "ResNet-200, version 2, of tensorflow/models");

// ---- CIFAR-10 ---------------------------------------------------------------

extern constinit const ModelEntry resnet20_model =
    resnet<cifar(Version::v1, 3)>("resnet20", 128, "ResNet-20 for CIFAR: 0.27 million parameters");
extern constinit const ModelEntry resnet20_v2_model = resnet<cifar(Version::v2, 3)>(
    "resnet20_v2", 128, "ResNet-20 for CIFAR, version 2: 0.27 million parameters");
extern constinit const ModelEntry resnet32_model =
    resnet<cifar(Version::v1, 5)>("resnet32", 128, "ResNet-32 for CIFAR: 0.46 million parameters");
extern constinit const ModelEntry resnet32_v2_model = resnet<cifar(Version::v2, 5)>(
    "resnet32_v2", 128, "ResNet-32 for CIFAR, version 2: 0.46 million parameters");
extern constinit const ModelEntry resnet44_model =
    resnet<cifar(Version::v1, 7)>("resnet44", 128, "ResNet-44 for CIFAR: 0.66 million parameters");
extern constinit const ModelEntry resnet44_v2_model = resnet<cifar(Version::v2, 7)>(
    "resnet44_v2", 128, "ResNet-44 for CIFAR, version 2: 0.66 million parameters");
extern constinit const ModelEntry resnet56_model =
    resnet<cifar(Version::v1, 9)>("resnet56", 128, "ResNet-56 for CIFAR: 0.85 million parameters");
extern constinit const ModelEntry resnet56_v2_model = resnet<cifar(Version::v2, 9)>(
    "resnet56_v2", 128, "ResNet-56 for CIFAR, version 2: 0.85 million parameters");
extern constinit const ModelEntry resnet110_model = resnet<cifar(Version::v1, 18)>(
    "resnet110", 128, "ResNet-110 for CIFAR: 1.7 million parameters");
extern constinit const ModelEntry resnet110_v2_model = resnet<cifar(Version::v2, 18)>(
    "resnet110_v2", 128, "ResNet-110 for CIFAR, version 2: 1.7 million parameters");

}  // namespace penstock
