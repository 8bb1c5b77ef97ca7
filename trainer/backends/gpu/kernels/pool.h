// SPDX-License-Identifier: Apache-2.0
// Max and average pools. A block writes one row of pixels of one image; a thread processes some of
// the row's channels. No two threads write the same place: the backward pass gathers.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

/// A row of pixels of one image.
struct ImageRow {
  std::int32_t image, row;
};
template <class Block>
PENSTOCK_DEVICE ImageRow image_row_of(const Block& block, std::int32_t height) {
  const std::int32_t image = block.row_block() / height;
  return {image, block.row_block() - image * height};
}

/// Places [first, last) along one side.
struct Places {
  std::int32_t first, last;
};
/// The places of a window that are inside the image, counted from the window's first place. That
/// first place is `start` in the image, which has `extent` places.
PENSTOCK_DEVICE Places inside(std::int32_t start, std::int32_t kernel, std::int32_t extent) {
  return {larger(0, -start), smaller(kernel, extent - start)};
}
/// The windows that contain a place of the image; `place` counts from the first window's start.
PENSTOCK_DEVICE Places windows_over(std::int32_t place, std::int32_t kernel, std::int32_t stride,
                                    std::int32_t windows) {
  return {larger(0, divide_up(place - kernel + 1, stride)), smaller(windows, place / stride + 1)};
}

template <class T>
PENSTOCK_DEVICE T* pixel_row(T* images, const ImageRow& at, std::int32_t height, std::int32_t width,
                             std::int32_t channels) {
  return images + ((std::int64_t{at.image} * height + at.row) * width) * channels;
}

/// Calls use(column, channel) for all pixels and channel groups of a row; threads share them.
template <int Width, class Block, class Use>
PENSTOCK_DEVICE void for_each_group(const Block& block, std::int32_t thread, std::int32_t width,
                                    std::int32_t channels, const Use& use) {
  const std::int32_t groups = channels / Width;
  for (std::int32_t i = thread; i < width * groups; i += block.threads()) {
    const std::int32_t column = i / groups;
    use(column, (i - column * groups) * Width);
  }
}

/// Stores neighbouring bytes.
template <int Width>
PENSTOCK_DEVICE void store_bytes(std::uint8_t* to, const std::int32_t (&bytes)[Width]) {
  if constexpr (Width == 1) {
    *to = static_cast<std::uint8_t>(bytes[0]);
  } else {
    Packed<std::uint8_t, Width> packed;
    PENSTOCK_UNROLL
    for (int w = 0; w < Width / 4; ++w) {
      packed.words[w] = static_cast<std::uint32_t>(bytes[4 * w] | bytes[4 * w + 1] << 8 |
                                                   bytes[4 * w + 2] << 16 | bytes[4 * w + 3] << 24);
    }
    store<Width>(to, packed);
  }
}
template <int Width>
PENSTOCK_DEVICE std::int32_t byte_of(const Packed<std::uint8_t, Width>& packed, int k) {
  if constexpr (Width == 1) {
    return packed.value;
  } else {
    return static_cast<std::int32_t>(packed.words[k / 4] >> (k % 4 * 8) & 0xffU);
  }
}

/// Sets dx to `sums`, or adds them to it.
template <int Width, class T>
PENSTOCK_DEVICE void put(T* dx, Lanes<Width> sums, bool accumulate) {
  if (accumulate) {
    const Lanes<Width> old = load_lanes<Width>(dx);
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) sums.of[k] += old.of[k];
  }
  store_lanes(dx, sums);
}

/// A forward body writes rows of outputs; a backward body writes rows of inputs.
inline Geometry forward_geometry(const PoolShape& shape, std::int32_t width) {
  return image_row_geometry(shape.images * shape.out_height,
                            shape.out_width * (shape.channels / width));
}
inline Geometry backward_geometry(const PoolShape& shape, std::int32_t width) {
  return image_row_geometry(shape.images * shape.height, shape.width * (shape.channels / width));
}

}  // namespace penstock::gpu
