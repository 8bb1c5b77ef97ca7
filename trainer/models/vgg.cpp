// SPDX-License-Identifier: Apache-2.0
// VGG (Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
// Recognition", 2014): configurations A, D and E.
#include <array>

#include "trainer/model.h"
#include "trainer/models/chain.h"

namespace penstock {
namespace {

/// The number of convolutions in each of the five stages.
using Depths = std::array<std::int32_t, 5>;

void add_vgg(Graph& graph, const Depths& depths, std::int32_t classes) {
  constexpr std::int32_t kChannels[] = {64, 128, 256, 512, 512};
  Chain net(graph, "", Graph::kInput);
  for (std::size_t stage = 0; stage < depths.size(); ++stage) {
    for (std::int32_t i = 0; i < depths[stage]; ++i) net.conv(kChannels[stage], 3);
    net.max_pool(2, 2);
  }
  net.affine(4096).dropout(0.5F).affine(4096).dropout(0.5F).logits(classes);
}

template <Depths kDepths>
constexpr ModelEntry vgg(std::string_view name, std::string_view summary, double gmac) {
  constexpr double kPublished = 154, kGmac = 15.5;  // of VGG-16; the others by their operations
  return {.name = name,
          .summary = summary,
          .aliases = {},
          .image = {224, 224, 3},
          .batch = 64,
          .classes = 1000,
          .min_side = 32,
          .p100_img_per_s = kPublished * kGmac / gmac,
          .build = [](Graph& graph, std::int32_t classes) { add_vgg(graph, kDepths, classes); }};
}

}  // namespace

extern constinit const ModelEntry vgg11_model = vgg<Depths{1, 1, 2, 2, 2}>(
    "vgg11", "VGG-11: 132.9 million parameters, 7.61 GMAC an image", 7.61);
extern constinit const ModelEntry vgg16_model = vgg<Depths{2, 2, 3, 3, 3}>(
    "vgg16", "VGG-16: 138.4 million parameters, 15.5 GMAC an image", 15.5);
extern constinit const ModelEntry vgg19_model = vgg<Depths{2, 2, 4, 4, 4}>(
    "vgg19", "VGG-19: 143.7 million parameters, 19.6 GMAC an image", 19.6);

}  // namespace penstock
