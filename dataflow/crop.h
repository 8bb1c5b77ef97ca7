// SPDX-License-Identifier: Apache-2.0
// Which part of an image becomes a training example: the geometry of torchvision's transforms,
// drawn from a counter-based generator. No pixels here.
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

/// All of it, whatever its aspect ratio.
Region whole_image(ImageSize image);

}  // namespace penstock
