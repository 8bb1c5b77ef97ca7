// SPDX-License-Identifier: Apache-2.0
// Tensors of [N, H, W, C] in the form of the plain operators.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/gpu/kernel_case.h"
#include "tests/support/plain_operators.h"

namespace penstock::gpu {

inline plain::Images images_of(const void* data, DType type, std::int32_t count,
                               const ImageShape& shape) {
  plain::Images images(count, shape);
  const auto channels = static_cast<std::size_t>(shape.channels);
  for (std::int32_t n = 0; n < count; ++n) {
    for (std::int32_t c = 0; c < shape.channels; ++c) {
      for (std::size_t p = 0; p < images.plane(); ++p) {
        const std::size_t pixel = static_cast<std::size_t>(n) * images.plane() + p;
        images.channel(n, c)[p] = value(data, type, pixel * channels + static_cast<std::size_t>(c));
      }
    }
  }
  return images;
}
/// The reverse: element i of [N, H, W, C].
inline double value_at(const plain::Images& images, std::size_t i) {
  const auto channels = static_cast<std::size_t>(images.shape.channels);
  const std::size_t pixel = i / channels, n = pixel / images.plane();
  return images.channel(static_cast<std::int32_t>(n),
                        static_cast<std::int32_t>(i % channels))[pixel % images.plane()];
}
/// Rows as the pixels of one image.
inline ImageShape image_of(const MatrixShape& shape) {
  return {static_cast<std::int32_t>(shape.rows), 1, shape.channels};
}

}  // namespace penstock::gpu
