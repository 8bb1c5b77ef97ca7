// SPDX-License-Identifier: Apache-2.0
// How an image changes on its way into a row of a batch: its crop, resize method and colour
// distortion. A chain names all three together; options name them one by one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dataflow/images/colour.h"
#include "dataflow/images/crop.h"
#include "dataflow/images/filter_taps.h"
#include "dataflow/options.h"

namespace penstock {

/// The values of the option `chain`.
inline constexpr OptionValue kChainValues[] = {
    {"torchvision", "crop=random, resize=bilinear, color=none"},
    {"tf_cnn_benchmarks", "crop=tf_box, resize=tf_bilinear, color=none"},
    {"tensorpack", "crop=tensorpack_random, resize=cv_bicubic, color=fbresnet"},
};

struct Augmentation {
  Crop crop = Crop::random;
  std::span<const Filter> filters;  ///< used in turn; static
  Colour colour = Colour::none;

  Filter filter(std::uint64_t turn) const noexcept { return filters[turn % filters.size()]; }
};

/// Reads the options chain, crop, resize and color of `component`. The chain sets the last three,
/// unless the user typed them. Throws ConfigError for invalid values.
Augmentation read_augmentation(std::string_view component, const Options& options);

/// The same augmentation without randomness: the crop's evaluation crop, and no colour distortion.
Augmentation evaluation_of(Augmentation augmentation);

}  // namespace penstock
