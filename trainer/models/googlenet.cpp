// SPDX-License-Identifier: Apache-2.0
// GoogLeNet (Szegedy et al., "Going deeper with convolutions", 2014), also called Inception v1, as
// in tf_cnn_benchmarks: with biases, without response normalisation, dropout or auxiliary heads.
#include "trainer/model.h"
#include "trainer/models/chain.h"

namespace penstock {
namespace {

/// The columns of table 1 of the paper.
struct Module {
  std::string_view name;
  std::int32_t one, reduce_three, three, reduce_five, five, pool;
};

NodeId add_module(Graph& graph, const Module& inception, NodeId input) {
  const Branches mix(graph, std::string(inception.name), input);
  return mix.join({mix.branch("1x1").conv(inception.one, 1),
                   mix.branch("3x3").conv(inception.reduce_three, 1).conv(inception.three, 3),
                   mix.branch("5x5").conv(inception.reduce_five, 1).conv(inception.five, 5),
                   mix.branch("pool").max_pool(3, 1, Padding::same).conv(inception.pool, 1)});
}

void build(Graph& graph, std::int32_t classes) {
  constexpr Module kModules[] = {
      {"3a", 64, 96, 128, 16, 32, 32},     {"3b", 128, 128, 192, 32, 96, 64},
      {"4a", 192, 96, 208, 16, 48, 64},    {"4b", 160, 112, 224, 24, 64, 64},
      {"4c", 128, 128, 256, 24, 64, 64},   {"4d", 112, 144, 288, 32, 64, 64},
      {"4e", 256, 160, 320, 32, 128, 128}, {"5a", 256, 160, 320, 32, 128, 128},
      {"5b", 384, 192, 384, 48, 128, 128}};
  NodeId node = Chain(graph, "stem", Graph::kInput)
                    .conv(64, 7, 2)
                    .max_pool(3, 2, Padding::same)
                    .conv(64, 1)
                    .conv(192, 3)
                    .max_pool(3, 2, Padding::same)
                    .end();
  for (const Module& inception : kModules) {
    if (inception.name == "4a" || inception.name == "5a") {  // the image gets a new size here
      node = Chain(graph, std::string(inception.name) + ".before", node)
                 .max_pool(3, 2, Padding::same)
                 .end();
    }
    node = add_module(graph, inception, node);
  }
  Chain(graph, "", node).global_avg_pool().logits(classes);
}

}  // namespace

extern constinit const ModelEntry googlenet_model{
    .name = "googlenet",
    .summary = "GoogLeNet, Inception v1: 7.0 million parameters, 1.58 GMAC an image",
    .aliases = "inception1 InceptionV1",
    .image = {224, 224, 3},
    .batch = 32,
    .min_side = 32,
    .build = build,
};

}  // namespace penstock
