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
                             {"tf_random", "tf_bilinear", "none"},
                             {"tensorpack_random", "cv_bicubic", "fbresnet"}};
static_assert(std::size(kChains) == std::size(kChainValues));

const Chain& parse_chain(std::string_view component, std::string_view text) {
  std::string known;
  for (std::size_t i = 0; i < std::size(kChainValues); ++i) {
    if (canonical_name(text) == canonical_name(kChainValues[i].name)) return kChains[i];
    known += (i == 0 ? "" : i + 1 == std::size(kChainValues) ? " or " : ", ");
    known += kChainValues[i].name;
  }
  throw ConfigError(std::string(component) + ": option 'chain' is '" + std::string(text) +
                    "'; expected " + known);
}

}  // namespace

Augmentation read_augmentation(std::string_view component, const Options& options) {
  const Chain& chain =
      options.given("chain") ? parse_chain(component, options.text("chain")) : kChains[0];
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
