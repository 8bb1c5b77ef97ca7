// SPDX-License-Identifier: Apache-2.0
// Inception v4 (Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual
// Connections on Learning", 2016), as in tf_cnn_benchmarks: dropout of 0.2 before the logits.
// Averages count only elements inside the image.
#include <string>

#include "trainer/model.h"
#include "trainer/models/chain.h"

namespace penstock {
namespace {

constexpr BatchNorm kNorm{.epsilon = 1e-3F};

/// Shrinks the image: 299 to 35.
NodeId add_stem(Graph& graph) {
  const NodeId start = Chain(graph, "stem", Graph::kInput, kNorm)
                           .conv(32, 3, 2, Padding::valid)
                           .conv(32, 3, 1, Padding::valid)
                           .conv(64, 3)
                           .end();
  const Branches first(graph, "stem_a", start, kNorm);
  const NodeId a = first.join(
      {first.branch("pool").max_pool(3, 2), first.branch("3x3").conv(96, 3, 2, Padding::valid)});
  const Branches second(graph, "stem_b", a, kNorm);
  const NodeId b = second.join({second.branch("3x3").conv(64, 1).conv(96, 3, 1, Padding::valid),
                                second.branch("7x7")
                                    .conv(64, 1)
                                    .conv(64, {7, 1})
                                    .conv(64, {1, 7})
                                    .conv(96, 3, 1, Padding::valid)});
  const Branches third(graph, "stem_c", b, kNorm);
  return third.join(
      {third.branch("3x3").conv(192, 3, 2, Padding::valid), third.branch("pool").max_pool(3, 2)});
}

NodeId add_a(Graph& graph, const std::string& name, NodeId input) {
  const Branches mix(graph, name, input, kNorm);
  return mix.join({mix.branch("pool").avg_pool(3, 1, Padding::same).conv(96, 1),
                   mix.branch("1x1").conv(96, 1), mix.branch("3x3").conv(64, 1).conv(96, 3),
                   mix.branch("3x3x2").conv(64, 1).conv(96, 3).conv(96, 3)});
}

/// Halves the image: 35 to 17.
NodeId add_a_to_b(Graph& graph, NodeId input) {
  const Branches mix(graph, "reduction_a", input, kNorm);
  return mix.join({mix.branch("pool").max_pool(3, 2),
                   mix.branch("3x3").conv(384, 3, 2, Padding::valid),
                   mix.branch("3x3x2").conv(192, 1).conv(224, 3).conv(256, 3, 2, Padding::valid)});
}

NodeId add_b(Graph& graph, const std::string& name, NodeId input) {
  const Branches mix(graph, name, input, kNorm);
  return mix.join({mix.branch("pool").avg_pool(3, 1, Padding::same).conv(128, 1),
                   mix.branch("1x1").conv(384, 1),
                   mix.branch("7x7").conv(192, 1).conv(224, {1, 7}).conv(256, {7, 1}),
                   mix.branch("7x7x2")
                       .conv(192, 1)
                       .conv(192, {1, 7})
                       .conv(224, {7, 1})
                       .conv(224, {1, 7})
                       .conv(256, {7, 1})});
}

/// Halves the image: 17 to 8.
NodeId add_b_to_c(Graph& graph, NodeId input) {
  const Branches mix(graph, "reduction_b", input, kNorm);
  return mix.join({mix.branch("pool").max_pool(3, 2),
                   mix.branch("3x3").conv(192, 1).conv(192, 3, 2, Padding::valid),
                   mix.branch("7x7")
                       .conv(256, 1)
                       .conv(256, {1, 7})
                       .conv(320, {7, 1})
                       .conv(320, 3, 2, Padding::valid)});
}

NodeId add_c(Graph& graph, const std::string& name, NodeId input) {
  const Branches mix(graph, name, input, kNorm);
  const Chain pool = mix.branch("pool").avg_pool(3, 1, Padding::same).conv(256, 1);
  const Chain single = mix.branch("1x1").conv(256, 1);
  const NodeId c = mix.branch("3x3").conv(384, 1).end();
  const Chain c_row = mix.branch("3x3.row", c).conv(256, {1, 3});
  const Chain c_column = mix.branch("3x3.column", c).conv(256, {3, 1});
  const NodeId d = mix.branch("3x3x2").conv(384, 1).conv(448, {1, 3}).conv(512, {3, 1}).end();
  const Chain d_column = mix.branch("3x3x2.column", d).conv(256, {3, 1});
  const Chain d_row = mix.branch("3x3x2.row", d).conv(256, {1, 3});
  return mix.join({pool, single, c_row, c_column, d_column, d_row});
}

void build(Graph& graph, std::int32_t classes) {
  NodeId node = add_stem(graph);
  for (int i = 1; i <= 4; ++i) node = add_a(graph, std::string("a") + std::to_string(i), node);
  node = add_a_to_b(graph, node);
  for (int i = 1; i <= 7; ++i) node = add_b(graph, std::string("b") + std::to_string(i), node);
  node = add_b_to_c(graph, node);
  for (int i = 1; i <= 3; ++i) node = add_c(graph, std::string("c") + std::to_string(i), node);
  Chain(graph, "", node).global_avg_pool().dropout(0.2F).logits(classes);
}

}  // namespace

extern constinit const ModelEntry inception4_model{
    .name = "inception4",
    .summary = "Inception v4: 42.7 million parameters, 12.3 GMAC an image",
    .aliases = "InceptionV4 inception_v4",
    .image = {299, 299, 3},
    .batch = 32,
    .min_side = 75,
    .build = build,
};

}  // namespace penstock
