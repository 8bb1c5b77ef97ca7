// SPDX-License-Identifier: Apache-2.0
// Chooses the part of an image that becomes a training example: the geometry of the transforms of
// torchvision, tf_cnn_benchmarks and tensorpack, drawn from a counter-based generator. This file
// touches no pixels. If a crop cuts before it resizes, the filter stays inside the part (low and
// high are the part's). If it resizes before it cuts, the filter may read the whole image.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dataflow/batch.h"
#include "dataflow/images/resample.h"
#include "dataflow/options.h"
#include "dataflow/random.h"
#include "dataflow/sample.h"

namespace penstock {

struct ImageSize {
  std::int32_t width = 0, height = 0;
};

/// A part of an image, and the pixels that the filter may read for it.
struct Region {
  Stretch columns, rows;
};

/// Adds `pad` pixels to each side and cuts a part of the image's original size. Coordinates include
/// the padding. CIFAR-10 training uses a pad of 4. The filter stays inside.
Region padded_crop(ImageSize image, std::int32_t pad, Random& random);

/// The crops by name: the values of a decoder's option `crop`. All decoders share them.
enum class Crop : std::uint8_t {
  random,
  centre,
  full,
  tf_random,
  tf_box,
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
    {"tf_box",
     "the same, but 5 to 100 % of the area and 10 % of an object's box, if the data have boxes"},
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
Region choose_region(Crop crop, ImageSize image, const ImageShape& output, Random& random,
                     std::span<const ObjectBox> boxes = {});

}  // namespace penstock
