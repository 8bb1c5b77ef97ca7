// SPDX-License-Identifier: Apache-2.0
// LeNet as in tf_cnn_benchmarks: the variant of LeCun's 1998 net in TensorFlow's first tutorial
// (padded 5x5 convolutions, ReLU, max pools), with 512 hidden units, on colour images.
#include "trainer/model.h"
#include "trainer/models/chain.h"

namespace penstock {
namespace {

void build(Graph& graph, std::int32_t classes) {
  Chain(graph, "", Graph::kInput)
      .conv(32, 5)
      .max_pool(2, 2)
      .conv(64, 5)
      .max_pool(2, 2)
      .affine(512)
      .logits(classes);
}

}  // namespace

extern constinit const ModelEntry lenet_model{
    .name = "lenet",
    .summary = "LeNet with ReLU on 28x28 colour images: 2.2 million parameters",
    .aliases = "lenet5",
    .image = {28, 28, 3},
    .batch = 32,
    .min_side = 4,
    .build = build,
};

}  // namespace penstock
