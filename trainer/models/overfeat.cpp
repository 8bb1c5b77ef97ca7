// SPDX-License-Identifier: Apache-2.0
// OverFeat (Sermanet et al., 2014), the fast model, as in tf_cnn_benchmarks.
#include "trainer/model.h"
#include "trainer/models/chain.h"

namespace penstock {
namespace {

void build(Graph& graph, std::int32_t classes) {
  Chain(graph, "", Graph::kInput)
      .conv(96, 11, 4, Padding::valid)
      .max_pool(2, 2)
      .conv(256, 5, 1, Padding::valid)
      .max_pool(2, 2)
      .conv(512, 3)
      .conv(1024, 3)
      .conv(1024, 3)
      .max_pool(2, 2)
      .affine(3072)
      .dropout(0.5F)
      .affine(4096)
      .dropout(0.5F)
      .logits(classes);
}

}  // namespace

extern constinit const ModelEntry overfeat_model{
    .name = "overfeat",
    .summary = "OverFeat, fast version: 145.9 million parameters, 2.8 GMAC an image",
    .image = {231, 231, 3},
    .batch = 32,
    .min_side = 71,
    .build = build,
};

}  // namespace penstock
