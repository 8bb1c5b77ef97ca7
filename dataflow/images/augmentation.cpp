// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/augmentation.h"

#include <iterator>
#include <string>

#include "dataflow/entry.h"

namespace penstock {
namespace {

struct Chain {
  std::string_view crop, resize, color;
};
/// The chains, in the order of kChainValues.
constexpr Chain kChains[] = {{"random", "bilinear", "none"},
                             {"tf_box", "tf_bilinear", "none"},
                             {"tensorpack_random", "cv_bicubic", "fbresnet"}};
static_assert(std::size(kChains) == std::size(kChainValues));

}  // namespace

Augmentation read_augmentation(std::string_view component, const Options& options) {
  const Chain& chain =
      kChains[options.given("chain") ? parse_choice(options.text("chain"), kChainValues,
                                                    std::string(component) + ": option 'chain'")
                                     : 0];
  const auto chosen = [&options](std::string_view name, std::string_view of_chain) {
    return options.given(name) ? std::string_view(options.text(name)) : of_chain;
  };
  return {parse_crop(component, chosen("crop", chain.crop)),
          parse_resize(component, chosen("resize", chain.resize)),
          parse_colour(component, chosen("color", chain.color))};
}

Augmentation evaluation_of(Augmentation augmentation) {
  augmentation.crop = evaluation_crop(augmentation.crop);
  augmentation.colour = Colour::none;
  return augmentation;
}

}  // namespace penstock
