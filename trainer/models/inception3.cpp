// SPDX-License-Identifier: Apache-2.0
// Inception v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015),
// without the auxiliary head and without dropout, as in tf_cnn_benchmarks, with one difference: the
// pool of the last module averages, as in the authors' later code and in torchvision. Averages
// count only elements inside the image, as in the authors' code.
#include "trainer/model.h"
#include "trainer/models/chain.h"

namespace penstock {
namespace {

constexpr BatchNorm kNorm{.epsilon = 1e-3F};

NodeId add_a(Graph& graph, const std::string& name, NodeId input, std::int32_t pool_channels) {
  const Branches mix(graph, name, input, kNorm);
  return mix.join({mix.branch("1x1").conv(64, 1), mix.branch("5x5").conv(48, 1).conv(64, 5),
                   mix.branch("3x3").conv(64, 1).conv(96, 3).conv(96, 3),
                   mix.branch("pool").avg_pool(3, 1, Padding::same).conv(pool_channels, 1)});
}

/// Halves the image: 35 to 17.
NodeId add_b(Graph& graph, const std::string& name, NodeId input) {
  const Branches mix(graph, name, input, kNorm);
  return mix.join({mix.branch("3x3").conv(384, 3, 2, Padding::valid),
                   mix.branch("3x3x3").conv(64, 1).conv(96, 3).conv(96, 3, 2, Padding::valid),
                   mix.branch("pool").max_pool(3, 2)});
}

NodeId add_c(Graph& graph, const std::string& name, NodeId input, std::int32_t inner) {
  const Branches mix(graph, name, input, kNorm);
  return mix.join({mix.branch("1x1").conv(192, 1),
                   mix.branch("7x7").conv(inner, 1).conv(inner, {1, 7}).conv(192, {7, 1}),
                   mix.branch("7x7x2")
                       .conv(inner, 1)
                       .conv(inner, {7, 1})
                       .conv(inner, {1, 7})
                       .conv(inner, {7, 1})
                       .conv(192, {1, 7}),
                   mix.branch("pool").avg_pool(3, 1, Padding::same).conv(192, 1)});
}

/// Halves the image: 17 to 8.
NodeId add_d(Graph& graph, const std::string& name, NodeId input) {
  const Branches mix(graph, name, input, kNorm);
  return mix.join({mix.branch("3x3").conv(192, 1).conv(320, 3, 2, Padding::valid),
                   mix.branch("7x7x3")
                       .conv(192, 1)
                       .conv(192, {1, 7})
                       .conv(192, {7, 1})
                       .conv(192, 3, 2, Padding::valid),
                   mix.branch("pool").max_pool(3, 2)});
}

NodeId add_e(Graph& graph, const std::string& name, NodeId input) {
  const Branches mix(graph, name, input, kNorm);
  const Chain single = mix.branch("1x1").conv(320, 1);
  const NodeId b = mix.branch("3x3").conv(384, 1).end();
  const Chain b_row = mix.branch("3x3.row", b).conv(384, {1, 3});
  const Chain b_column = mix.branch("3x3.column", b).conv(384, {3, 1});
  const NodeId c = mix.branch("3x3x2").conv(448, 1).conv(384, 3).end();
  const Chain c_row = mix.branch("3x3x2.row", c).conv(384, {1, 3});
  const Chain c_column = mix.branch("3x3x2.column", c).conv(384, {3, 1});
  const Chain pool = mix.branch("pool").avg_pool(3, 1, Padding::same).conv(192, 1);
  return mix.join({single, b_row, b_column, c_row, c_column, pool});
}

/// Modules have the names of torchvision.
void build(Graph& graph, std::int32_t classes) {
  NodeId node = Chain(graph, "stem", Graph::kInput, kNorm)
                    .conv(32, 3, 2, Padding::valid)
                    .conv(32, 3, 1, Padding::valid)
                    .conv(64, 3)
                    .max_pool(3, 2)
                    .conv(80, 1)
                    .conv(192, 3, 1, Padding::valid)
                    .max_pool(3, 2)
                    .end();
  node = add_a(graph, "mixed_5b", node, 32);
  node = add_a(graph, "mixed_5c", node, 64);
  node = add_a(graph, "mixed_5d", node, 64);
  node = add_b(graph, "mixed_6a", node);
  node = add_c(graph, "mixed_6b", node, 128);
  node = add_c(graph, "mixed_6c", node, 160);
  node = add_c(graph, "mixed_6d", node, 160);
  node = add_c(graph, "mixed_6e", node, 192);
  node = add_d(graph, "mixed_7a", node);
  node = add_e(graph, "mixed_7b", node);
  node = add_e(graph, "mixed_7c", node);
  Chain(graph, "", node).global_avg_pool().logits(classes);
}

}  // namespace

extern constinit const ModelEntry inception3_model{
    .name = "inception3",
    .summary = "Inception v3: 23.8 million parameters, 5.71 GMAC an image",
    .aliases = "InceptionV3 inception_v3",
    .image = {299, 299, 3},
    .batch = 32,
    .min_side = 75,
    .p100_img_per_s = 142,
    .build = build,
};

}  // namespace penstock
