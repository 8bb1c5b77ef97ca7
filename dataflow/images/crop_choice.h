// SPDX-License-Identifier: Apache-2.0
// The crops by their names: what the option `crop` of a decoder takes, whatever its pixels come
// from.
#pragma once

#include <cstdint>
#include <string_view>

#include "dataflow/crop.h"
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

/// In the order of Crop.
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

/// The crop of that name. Throws ConfigError, which names `component`, for others.
Crop parse_crop(std::string_view component, std::string_view text);

/// Its name, as typed.
std::string_view name_of(Crop crop);

/// What stands for it in evaluation; itself where it takes no chance.
Crop evaluation_crop(Crop crop);

/// The region of `image` that becomes `output`. Crops that take no chance draw nothing.
Region choose_region(Crop crop, ImageSize image, const ImageShape& output, Random& random);

}  // namespace penstock
