// SPDX-License-Identifier: Apache-2.0
// Which part of an image becomes a training example: the geometry of torchvision's, of
// tf_cnn_benchmarks' and of tensorpack's transforms, drawn from a counter-based generator. No
// pixels here. Parts that are cut before they are resized keep the filter inside (low and high are
// those of the part); where an image is resized before it is cut, the filter reads all of it.
#pragma once

#include <cstdint>

#include "dataflow/batch.h"
#include "dataflow/random.h"
#include "dataflow/resample.h"

namespace penstock {

struct ImageSize {
  std::int32_t width = 0, height = 0;
};

/// A part of an image, and the pixels that the filter may read for it.
struct Region {
  Stretch columns, rows;
};

/// RandomResizedCrop with its usual figures: 8 to 100 % of the area, aspect ratio 3/4 to 4/3
/// uniform in its logarithm; ten tries, then the largest centred part of such a ratio. The filter
/// stays inside.
Region random_resized_crop(ImageSize image, Random& random);

/// Resize(256) and CenterCrop(224), scaled to `output`, as one region: the shorter side becomes
/// 256/224 of the output's. The filter reads beyond the region, as it does there. Unlike there, the
/// longer side is not rounded to a whole number of pixels before the crop.
Region centre_crop(ImageSize image, const ImageShape& output);

/// sample_distorted_bounding_box as tf_cnn_benchmarks calls it, with the whole image as the object:
/// aspect ratio uniform in 0.75 to 1.33, then a height uniform among the whole numbers that keep
/// the area within 5 to 100 % and the width inside, and a place, of which the last row and column
/// are never drawn; 100 tries until at least 10 % of the image is covered, then the whole image.
/// The filter stays inside.
Region tf_random_crop(ImageSize image, Random& random);

/// The evaluation of tf_cnn_benchmarks: both sides resized by the same factor, rounded down to
/// whole pixels, such that the output times 1.145 is covered, and the centre of that.
Region tf_centre_crop(ImageSize image, const ImageShape& output);

/// tensorpack's GoogleNetRandomCropAndResize: 8 to 100 % of the area, aspect ratio uniform in 0.75
/// to 1.333 and inverted for every other image; ten tries, then the centre of the image resized
/// until its shorter side is the output's. The filter stays inside a part that was drawn.
Region tensorpack_random_crop(ImageSize image, const ImageShape& output, Random& random);

/// ResizeShortestEdge(256) and CenterCrop(224) as tensorpack rounds them, scaled to `output`.
Region tensorpack_centre_crop(ImageSize image, const ImageShape& output);

/// All of it, whatever its aspect ratio.
Region whole_image(ImageSize image);

/// Of an image with `pad` pixels more on each side, a part of the image's own size; in coordinates
/// that count the padding. With a pad of 4 it is what CIFAR-10 is trained with. The filter stays
/// inside.
Region padded_crop(ImageSize image, std::int32_t pad, Random& random);

}  // namespace penstock
