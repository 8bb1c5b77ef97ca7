// SPDX-License-Identifier: Apache-2.0
// AlexNet as in tf_cnn_benchmarks.
// On ImageNet: the form without groups and without response normalisation of Krizhevsky, "One weird
// trick for parallelizing convolutional neural networks" (2014): 64, 192, 384, 384 and 256
// channels; the first convolution is unpadded on 227x227 images. (The 2012 paper has two groups of
// 48 to 192 channels and normalises; torchvision has 256 channels in the fourth.)
// On CIFAR-10: the net of TensorFlow's tutorial, from Krizhevsky's "cuda-convnet".
#include "trainer/model.h"
#include "trainer/models/chain.h"

namespace penstock {
namespace {

void build_imagenet(Graph& graph, std::int32_t classes) {
  Chain(graph, "", Graph::kInput)
      .conv(64, 11, 4, Padding::valid)
      .max_pool(3, 2)
      .conv(192, 5)
      .max_pool(3, 2)
      .conv(384, 3)
      .conv(384, 3)
      .conv(256, 3)
      .max_pool(3, 2)
      .affine(4096)
      .dropout(0.5F)
      .affine(4096)
      .dropout(0.5F)
      .logits(classes);
}

void build_cifar10(Graph& graph, std::int32_t classes) {
  // TensorFlow's alpha applies to each neighbour: 0.001 / 9.
  constexpr Lrn kLrn{.size = 9, .alpha = 0.001F, .beta = 0.75F, .k = 1};
  Chain(graph, "", Graph::kInput)
      .conv(64, 5)
      .max_pool(3, 2, Padding::same)
      .lrn(kLrn)
      .conv(64, 5)
      .lrn(kLrn)
      .max_pool(3, 2, Padding::same)
      .affine(384)
      .affine(192)
      .logits(classes);
}

}  // namespace

extern constinit const ModelEntry alexnet_model{
    .name = "alexnet",
    .summary = "AlexNet without groups (2014): 61.8 million parameters, 0.84 GMAC an image",
    .image = {227, 227, 3},
    .batch = 512,
    .min_side = 67,
    .p100_img_per_s = 2987,
    .build = build_imagenet,
};

extern constinit const ModelEntry alexnet_cifar10_model{
    .name = "alexnet_cifar10",
    .summary = "alexnet of tf_cnn_benchmarks for CIFAR-10: 1.8 million parameters",
    .image = {32, 32, 3},
    .batch = 128,
    .classes = 10,
    .min_side = 4,
    .build = build_cifar10,
};

}  // namespace penstock
