// SPDX-License-Identifier: Apache-2.0
// The crops by name: the values of a decoder's option `crop`. All decoders share them.
#pragma once

#include <cstdint>
#include <string_view>

#include "dataflow/images/crop.h"
#include "dataflow/options.h"

namespace penstock {

enum class Crop : std::uint8_t {
  random,
  centre,
  full,
  tf_random,
  tf_centre,
  tensorpack_random,
  tensorpack_centre
};

/// The values of the option `crop`, in the order of Crop.
inline constexpr OptionValue kCropValues[] = {
    {"random",
     "torchvision's random resized crop: 8 to 100 % of the area, aspect ratio 3/4 to 4/3"},
    {"center",
     "torchvision's evaluation: shorter side scaled to 256/224 of the output, then the centre"},
    {"full", "the whole image, resized without keeping its aspect ratio"},
    {"tf_random",
     "tf_cnn_benchmarks' distorted bounding box: 10 to 100 % of the area, aspect ratio 0.75 to "
     "1.33"},
    {"tf_center",
     "tf_cnn_benchmarks' evaluation: resized to 1.145 times the output, then the centre"},
    {"tensorpack_random",
     "tensorpack's GoogleNet crop: 8 to 100 % of the area, aspect ratio 0.75 to 1.333"},
    {"tensorpack_center",
     "tensorpack's evaluation: shorter side scaled to 256/224 of the output, then the centre"},
};

/// The crop of that name. Throws ConfigError that names `component` for an unknown name.
Crop parse_crop(std::string_view component, std::string_view text);

/// The crop's name, as typed.
std::string_view name_of(Crop crop);

/// The crop that replaces it in evaluation. A crop without randomness replaces itself.
Crop evaluation_crop(Crop crop);

/// The region of `image` that becomes `output`. Crops without randomness draw nothing.
Region choose_region(Crop crop, ImageSize image, const ImageShape& output, Random& random);

}  // namespace penstock
