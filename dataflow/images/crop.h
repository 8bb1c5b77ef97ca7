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

/// RandomResizedCrop with its default parameters: 8 to 100 % of the area, aspect ratio 3/4 to 4/3,
/// uniform in its logarithm. After ten failed tries it takes the largest centred part with such a
/// ratio. The filter stays inside.
Region random_resized_crop(ImageSize image, Random& random);

/// Resize(256) and CenterCrop(224), scaled to `output`, as one region: the shorter side becomes
/// 256/224 of the output's. As in the original, the filter reads beyond the region. Unlike the
/// original, the longer side is not rounded to a whole number of pixels before the crop.
Region centre_crop(ImageSize image, const ImageShape& output);

/// sample_distorted_bounding_box as tf_cnn_benchmarks calls it. It draws the aspect ratio uniformly
/// from 0.75 to 1.33. Then it draws the height uniformly from the whole numbers that keep the area
/// within 5 to 100 % and the width inside the image. Then it draws a position, but never the last
/// possible row or column. It makes up to 100 tries until at least 10 % of an object's box is
/// covered, then takes the whole image. Boxes are rounded down to whole pixels; those without a
/// pixel do not count. Without boxes the whole image is the object. The filter stays inside.
Region tf_box_crop(ImageSize image, std::span<const ObjectBox> boxes, Random& random);

/// The evaluation of tf_cnn_benchmarks. It resizes both sides by the same factor, rounded down to
/// whole pixels, to cover 1.145 times the output, and takes the centre.
Region tf_centre_crop(ImageSize image, const ImageShape& output);

/// tensorpack's GoogleNetRandomCropAndResize: 8 to 100 % of the area, aspect ratio uniform in 0.75
/// to 1.333, inverted with probability 1/2. After ten failed tries it takes the centre of the
/// image, resized until its shorter side is the output's. The filter stays inside a part that was
/// drawn.
Region tensorpack_random_crop(ImageSize image, const ImageShape& output, Random& random);

/// ResizeShortestEdge(256) and CenterCrop(224) as tensorpack rounds them, scaled to `output`.
Region tensorpack_centre_crop(ImageSize image, const ImageShape& output);

/// The whole image; it does not keep the aspect ratio.
Region whole_image(ImageSize image);

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
