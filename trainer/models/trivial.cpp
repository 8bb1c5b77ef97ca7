// SPDX-License-Identifier: Apache-2.0
// The two-layer toy model of tf_cnn_benchmarks, on 227x227 ImageNet or 32x32 CIFAR images: nearly
// all of its time is input.
#include "trainer/model.h"

namespace penstock {
namespace {

void build(Graph& graph, std::int32_t classes) {
  const NodeId hidden = graph.add("affine1", Linear{1}, {Graph::kInput});
  const NodeId relu = graph.add("relu1", Relu{}, {hidden});
  const NodeId wide = graph.add("affine2", Linear{4096}, {relu});
  const NodeId relu2 = graph.add("relu2", Relu{}, {wide});
  graph.add("logits", Linear{classes}, {relu2});
}

}  // namespace

extern constinit const ModelEntry trivial_model{
    .name = "trivial",
    .summary = "trivial of tf_cnn_benchmarks: affine layers of 1 and 4096 units, and logits",
    .image = {227, 227, 3},
    .batch = 32,
    .build = build,
};

extern constinit const ModelEntry trivial_cifar10_model{
    .name = "trivial_cifar10",
    .summary = "trivial of tf_cnn_benchmarks for CIFAR-10: the same on 32x32 images",
    .image = {32, 32, 3},
    .batch = 32,
    .classes = 10,
    .build = build,
};

}  // namespace penstock
