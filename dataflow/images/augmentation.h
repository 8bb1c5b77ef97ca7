// SPDX-License-Identifier: Apache-2.0
// What happens to an image on its way into a row of a batch: the crop, the resize method and the
// colour distortion that a chain names together, and that options name one by one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dataflow/colour.h"
#include "dataflow/crop_choice.h"
#include "dataflow/filter_taps.h"
#include "dataflow/options.h"

namespace penstock {

/// What the option `chain` takes.
inline constexpr OptionValue kChainValues[] = {
    {"torchvision", "crop=random, resize=bilinear, color=none"},
    {"tf_cnn_benchmarks", "crop=tf_random, resize=tf_bilinear, color=none"},
    {"tensorpack", "crop=tensorpack_random, resize=cv_bicubic, color=fbresnet"},
};

struct Augmentation {
  Crop crop = Crop::random;
  std::span<const Filter> filters;  ///< take turns; static
  Colour colour = Colour::none;

  Filter filter(std::uint64_t turn) const noexcept { return filters[turn % filters.size()]; }
};

/// Reads the options chain, crop, resize and color of `component`: the last three are the chain's
/// unless they were typed. Throws ConfigError for values that are none.
Augmentation read_augmentation(std::string_view component, const Options& options);

/// The same where nothing may be left to chance: what stands for the crop, and colours as they are.
Augmentation evaluation_of(Augmentation augmentation);

}  // namespace penstock
