// SPDX-License-Identifier: Apache-2.0
#include "tests/support/small_graphs.h"

#include <functional>
#include <utility>

#include "dataflow/random.h"

namespace penstock {
namespace {

/// Adds nodes after the first convolution and returns the last of them.
using Body = std::function<NodeId(Graph&, NodeId)>;

/// The first convolution has `channels` 3x3 filters with padding that keeps the image's size.
Graph with_ends(const ImageShape& image, std::int32_t channels, std::int32_t classes,
                const Body& body) {
  Graph graph(image);
  const NodeId first =
      graph.add("first", Conv2d{channels, {3, 3, 1, 1, 1, 1, 1}, 1, true}, {Graph::kInput});
  graph.add("logits", Linear{classes}, {body(graph, first)});
  return graph;
}

Body one(const Op& op) {
  return [op](Graph& graph, NodeId first) { return graph.add("op", op, {first}); };
}

Body two(const Op& a, const Op& b) {
  return [a, b](Graph& graph, NodeId first) {
    return graph.add("op2", b, {graph.add("op1", a, {first})});
  };
}

NodeId three_readers(Graph& graph, NodeId first) {
  const NodeId a = graph.add("a", Conv2d{5, {}}, {first});
  const NodeId b = graph.add("b", Conv2d{5, {3, 3, 1, 1, 1, 1, 1}}, {first});
  const NodeId sum = graph.add("sum", Add{}, {a, b});
  return graph.add("again", Add{}, {sum, first});
}

NodeId branches(Graph& graph, NodeId first) {
  const NodeId a = graph.add("a", Conv2d{1, {}, 1, true}, {first});
  const NodeId b = graph.add("b", Conv2d{17, {3, 1, 1, 1, 0, 1, 0}}, {first});
  const NodeId c = graph.add("c", MaxPool{{3, 3, 1, 1, 1, 1, 1}}, {first});
  return graph.add("joined", Concat{}, {a, b, c, first});
}

/// Convolution, batch norm and ReLU in the pattern of a residual network, with a projection.
NodeId residual(Graph& graph, NodeId first, std::int32_t channels) {
  NodeId node = graph.add("bn0", BatchNorm{}, {first});
  node = graph.add("relu0", Relu{}, {node});
  const NodeId pooled = graph.add("pool", MaxPool{{3, 3, 2, 1, 1, 1, 1}}, {node});
  node = graph.add("conv1", Conv2d{channels, {1, 1, 2}}, {pooled});
  node = graph.add("bn1", BatchNorm{}, {node});
  node = graph.add("relu1", Relu{}, {node});
  node = graph.add("conv2", Conv2d{channels, {3, 3, 1, 1, 1, 1, 1}}, {node});
  node = graph.add("bn2", BatchNorm{}, {node});
  const NodeId projected = graph.add("conv3", Conv2d{channels, {1, 1, 2}}, {pooled});
  const NodeId shortcut = graph.add("bn3", BatchNorm{}, {projected});
  node = graph.add("add", Add{}, {node, shortcut});
  node = graph.add("relu", Relu{}, {node});
  return graph.add("mean", GlobalAvgPool{}, {node});
}

NodeId norm_relu(Graph& graph, const std::string& name, NodeId node) {
  return graph.add(name + "_relu", Relu{}, {graph.add(name + "_bn", BatchNorm{}, {node})});
}

/// One block of a residual network: `before` and `middle` are the strides of its first 1x1 and of
/// its 3x3 convolution. With a stride the shortcut has a projection.
NodeId bottleneck(Graph& graph, const std::string& name, NodeId input, std::int32_t before,
                  std::int32_t middle) {
  const std::int32_t channels = graph.shape(input).channels, stride = before * middle;
  const std::int32_t outputs = stride == 1 ? channels : 2 * channels;
  NodeId node = graph.add(name + "_a", Conv2d{8, {1, 1, before}}, {input});
  node = norm_relu(graph, name + "_a", node);
  node = graph.add(name + "_b", Conv2d{8, {3, 3, middle, 1, 1, 1, 1}}, {node});
  node = norm_relu(graph, name + "_b", node);
  node = graph.add(name + "_c", Conv2d{outputs, {}}, {node});
  node = graph.add(name + "_c_bn", BatchNorm{}, {node});
  NodeId shortcut = input;
  if (stride != 1) {
    shortcut = graph.add(name + "_p", Conv2d{outputs, {1, 1, stride}}, {input});
    shortcut = graph.add(name + "_p_bn", BatchNorm{}, {shortcut});
  }
  node = graph.add(name + "_sum", Add{}, {node, shortcut});
  return graph.add(name + "_out", Relu{}, {node});
}

/// Identities and projections in turn, so that each kind follows each other kind.
NodeId bottlenecks(Graph& graph, NodeId first, std::int32_t before, std::int32_t middle) {
  NodeId node = norm_relu(graph, "stem", first);
  node = bottleneck(graph, "one", node, before, middle);
  node = bottleneck(graph, "two", node, 1, 1);
  node = bottleneck(graph, "three", node, 1, 1);
  node = bottleneck(graph, "four", node, before, middle);
  return graph.add("mean", GlobalAvgPool{}, {node});
}

/// Batch norm and ReLU come first, and also feed the projection.
NodeId preactivated(Graph& graph, NodeId first) {
  NodeId ready = norm_relu(graph, "one", first);
  NodeId node = graph.add("one_a", Conv2d{8, {}}, {ready});
  node = norm_relu(graph, "one_a", node);
  node = graph.add("one_b", Conv2d{16, {3, 3, 2, 1, 1, 1, 1}}, {node});
  const NodeId projected = graph.add("one_p", Conv2d{16, {1, 1, 2}}, {ready});
  const NodeId sum = graph.add("one_sum", Add{}, {node, projected});
  ready = norm_relu(graph, "two", sum);
  node = graph.add("two_a", Conv2d{16, {3, 3, 1, 1, 1, 1, 1}, 1, true}, {ready});
  node = graph.add("two_sum", Add{}, {node, sum});
  return norm_relu(graph, "final", node);
}

/// A stem that may be computed over blocks of 2x2 pixels.
void add_stem(std::vector<SmallGraph>& graphs, std::string name, const ImageShape& image,
              bool bias) {
  Graph graph(image);
  const NodeId conv = graph.add("stem", Conv2d{8, {7, 7, 2, 3, 3, 3, 3}, 1, bias}, {Graph::kInput});
  const NodeId relu = norm_relu(graph, "stem", conv);
  graph.add("logits", Linear{3}, {relu});
  graphs.push_back({std::move(name), 3, std::move(graph)});
}

void add_convolutions(std::vector<SmallGraph>& graphs) {
  const auto add = [&](std::string name, std::int32_t images, const ImageShape& image,
                       std::int32_t channels, const Op& op) {
    graphs.push_back({std::move(name), images, with_ends(image, channels, 5, one(op))});
  };
  add("conv_uneven_padding", 2, {7, 5, 3}, 5, Conv2d{17, {3, 3, 1, 1, 0, 0, 2}, 1, true});
  add("conv_stride_2", 3, {9, 7, 1}, 3, Conv2d{5, {3, 3, 2, 1, 1, 1, 1}});
  add("conv_stride_2_padded_behind", 2, {8, 6, 3}, 3, Conv2d{5, {3, 3, 2, 0, 0, 1, 1}, 1, true});
  add("conv_stride_3_5x2", 2, {11, 8, 3}, 1, Conv2d{3, {5, 2, 3, 2, 1, 1, 0}, 1, true});
  add("conv_1x1_stride_2", 2, {6, 5, 3}, 17, Conv2d{5, {1, 1, 2}});
  add("conv_1x7", 1, {5, 9, 3}, 3, Conv2d{5, {1, 7, 1, 0, 3, 0, 3}});
  add("conv_groups", 2, {5, 5, 3}, 6, Conv2d{9, {3, 3, 1, 1, 1, 1, 1}, 3, true});
  add("conv_depthwise", 2, {5, 7, 3}, 17, Conv2d{17, {3, 3, 2, 1, 1, 1, 1}, 17});
  add("conv_depthwise_doubled", 2, {5, 4, 3}, 5, Conv2d{10, {3, 3, 1, 1, 1, 1, 1}, 5, true});
  add("conv_one_pixel", 3, {1, 1, 17}, 5, Conv2d{3, {3, 3, 1, 1, 1, 1, 1}, 1, true});
  add("conv_whole_image", 2, {4, 3, 3}, 3, Conv2d{16, {4, 3, 1}, 1, true});
  graphs.push_back({"conv_wide_channels", 2,
                    with_ends({4, 5, 3}, 16, 10, two(Conv2d{32, {3, 3, 1, 1, 1, 1, 1}}, Relu{}))});
  graphs.push_back(
      {"conv_1x1_wide_channels", 2,
       with_ends({5, 7, 3}, 32, 10,
                 two(Conv2d{48, {1, 1, 1}, 1, true}, Conv2d{16, {1, 1, 3}, 1, true}))});
  add("conv_1x1_padded_behind", 2, {6, 5, 3}, 16, Conv2d{16, {1, 1, 1, 0, 0, 1, 1}});
  add("conv_1x1_stride_2_padded_behind", 2, {6, 4, 3}, 16, Conv2d{32, {1, 1, 2, 0, 0, 1, 1}});

  Graph stem({17, 15, 3});
  const NodeId conv = stem.add("stem", Conv2d{8, {7, 7, 2, 3, 3, 3, 3}}, {Graph::kInput});
  stem.add("logits", Linear{3}, {conv});
  graphs.push_back({"conv_on_the_image", 2, std::move(stem)});
  add_stem(graphs, "stem_of_even_sides", {12, 8, 3}, false);
  add_stem(graphs, "stem_of_grey_images", {6, 10, 1}, true);
}

void add_pools(std::vector<SmallGraph>& graphs) {
  const auto add = [&](std::string name, const ImageShape& image, std::int32_t channels,
                       const Op& op) {
    graphs.push_back({std::move(name), 2, with_ends(image, channels, 5, one(op))});
  };
  add("max_pool", {7, 9, 3}, 3, MaxPool{{3, 3, 2, 1, 1, 1, 1}});
  add("max_pool_overlapping", {5, 4, 3}, 17, MaxPool{{3, 2, 1, 0, 1, 2, 0}});
  add("max_pool_stride_3", {8, 8, 1}, 5, MaxPool{{2, 3, 3, 0, 0, 0, 1}});
  add("max_pool_one_pixel", {1, 1, 3}, 5, MaxPool{{3, 3, 2, 1, 1, 1, 1}});
  add("avg_pool", {6, 7, 3}, 5, AvgPool{{3, 3, 2, 1, 1, 1, 1}, true});
  add("avg_pool_inside", {6, 7, 3}, 5, AvgPool{{3, 3, 2, 1, 1, 1, 1}, false});
  add("avg_pool_uneven", {5, 5, 3}, 17, AvgPool{{2, 3, 1, 0, 2, 1, 0}, false});
  add("avg_pool_stride_3", {7, 7, 1}, 3, AvgPool{{2, 2, 3}, true});
  add("global_avg_pool", {5, 3, 3}, 17, GlobalAvgPool{});
}

void add_norms(std::vector<SmallGraph>& graphs) {
  const auto add = [&](std::string name, std::int32_t images, const ImageShape& image,
                       std::int32_t channels, const Body& body) {
    graphs.push_back({std::move(name), images, with_ends(image, channels, 5, body)});
  };
  add("batch_norm", 3, {5, 3, 3}, 5, one(BatchNorm{}));
  add("batch_norm_17", 2, {3, 3, 1}, 17, one(BatchNorm{1e-3F, 0.25F}));
  add("batch_norm_one_pixel", 5, {1, 1, 3}, 3, one(BatchNorm{}));
  add("batch_norm_relu", 2, {4, 5, 3}, 16, two(BatchNorm{}, Relu{}));
  add("batch_norm_twice", 3, {3, 5, 3}, 1, two(BatchNorm{1e-5F, 0.5F}, BatchNorm{1e-2F, 0.1F}));
  add("lrn", 2, {3, 5, 3}, 17, one(Lrn{5, 0.5F, 0.75F, 1}));
  add("lrn_24", 2, {3, 5, 3}, 24, one(Lrn{5, 0.5F, 0.75F, 1}));
  add("lrn_32", 2, {3, 5, 3}, 32, one(Lrn{5, 0.5F, 0.75F, 1}));
  add("lrn_3", 2, {3, 4, 3}, 5, one(Lrn{3, 0.3F, 0.75F, 2}));
  add("lrn_wider_than_channels", 2, {3, 3, 3}, 3, one(Lrn{7, 1, 0.5F, 1}));
  add("lrn_one_channel", 2, {3, 3, 3}, 1, one(Lrn{5, 1, 0.75F, 1}));
}

}  // namespace

std::vector<SmallGraph> small_graphs() {
  std::vector<SmallGraph> graphs;
  add_convolutions(graphs);
  add_pools(graphs);
  add_norms(graphs);
  const auto add = [&](std::string name, std::int32_t images, const ImageShape& image,
                       std::int32_t channels, const Body& body) {
    graphs.push_back({std::move(name), images, with_ends(image, channels, 5, body)});
  };
  add("relu", 2, {5, 3, 3}, 17, one(Relu{}));
  add("dropout", 3, {3, 5, 3}, 17, two(Relu{}, Dropout{0.5F}));
  add("dropout_twice", 2, {3, 3, 3}, 5, two(Dropout{0.25F}, Dropout{0.1F}));
  add("dropout_nothing", 2, {3, 3, 3}, 5, one(Dropout{0}));
  add("linear_hidden", 3, {3, 2, 3}, 5, two(Linear{17}, Relu{}));
  add("pad_channels", 2, {3, 5, 3}, 3, one(PadChannels{1, 2}));
  add("pad_channels_behind", 2, {3, 5, 3}, 17, one(PadChannels{0, 15}));
  add("add", 2, {3, 5, 3}, 5, three_readers);
  add("add_to_itself", 2, {3, 3, 3}, 3, [](Graph& graph, NodeId first) {
    return graph.add("twice", Add{}, {first, first});
  });
  add("concat", 2, {5, 3, 3}, 5, branches);
  for (const std::int32_t channels : {5, 16}) {
    add("residual_" + std::to_string(channels), 4, {11, 9, 3}, channels,
        [channels](Graph& graph, NodeId first) { return residual(graph, first, channels); });
  }
  for (const auto& [before, middle] : {std::pair(1, 2), std::pair(2, 1)}) {
    add(before == 1 ? "bottlenecks" : "bottlenecks_early_stride", 4, {13, 11, 3}, 8,
        [before, middle](Graph& graph, NodeId first) {
          return bottlenecks(graph, first, before, middle);
        });
  }
  add("preactivated", 3, {7, 5, 3}, 8, preactivated);
  Graph affine({3, 5, 3});
  affine.add("logits", Linear{7}, {Graph::kInput});
  graphs.push_back({"linear_on_the_image", 1, std::move(affine)});
  graphs.push_back({"one_class", 2, with_ends({3, 3, 1}, 3, 1, one(Relu{}))});
  return graphs;
}

PlainBatch random_batch(const ImageShape& shape, std::int32_t images, std::int32_t classes,
                        std::uint64_t seed) {
  Random random(seed);
  PlainBatch batch;
  batch.valid = images;
  batch.pixels.resize(static_cast<std::size_t>(images) * shape.elements());
  random.fill(std::as_writable_bytes(std::span(batch.pixels)));
  for (std::int32_t n = 0; n < images; ++n) {
    batch.labels.push_back(
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(classes))));
  }
  return batch;
}

PlainWeights uneven_weights(const Graph& graph, std::uint64_t seed) {
  PlainWeights weights = plain_initial_weights(graph, seed);
  Random random(seed, 1);
  // f32 values, so that backends start from exactly equal weights.
  const auto shake = [&](std::vector<double>& values, double low, double high) {
    for (double& value : values) value += static_cast<float>(random.uniform(low, high));
    for (double& value : values) value = static_cast<float>(value);
  };
  const std::vector<ParameterSpec> parameters = graph.parameters(), buffers = graph.buffers();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].role != Role::weight) shake(weights.parameters[i], -0.4, 0.4);
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) shake(weights.buffers[i], -0.4, 0.4);
  return weights;
}

}  // namespace penstock
