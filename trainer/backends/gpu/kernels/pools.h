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

/// A forward body writes rows of outputs; a backward body writes rows of inputs.
inline Geometry forward_geometry(const PoolShape& shape, std::int32_t width) {
  return image_row_geometry(shape.images * shape.out_height,
                            shape.out_width * (shape.channels / width));
}
inline Geometry backward_geometry(const PoolShape& shape, std::int32_t width) {
  return image_row_geometry(shape.images * shape.height, shape.width * (shape.channels / width));
}

// ---- max pools, also of a batch norm's ReLU ---------------------------------

/// `Norm`: pools the ReLU of a batch norm, which the kernel computes.
template <class T, int Width, bool Norm>
struct MaxPoolForwardBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = Norm ? 3 : 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const MaxPoolForward& call) {
    const PoolShape& shape = call.shape;
    block.for_each_thread([&](std::int32_t thread) {
      const ImageRow row = image_row_of(block, shape.out_height);
      for_each_group<Width>(
          block, thread, shape.out_width, shape.channels,
          [&](std::int32_t column, std::int32_t channel) { pool(call, row, column, channel); });
    });
  }

 private:
  static PENSTOCK_DEVICE void pool(const MaxPoolForward& call, const ImageRow& row,
                                   std::int32_t column, std::int32_t channel) {
    const PoolShape& shape = call.shape;
    const Window& window = shape.window;
    const std::int32_t top = row.row * window.stride - window.top;
    const std::int32_t left = column * window.stride - window.left;
    const Places rows = inside(top, window.kernel_h, shape.height);
    const Places columns = inside(left, window.kernel_w, shape.width);
    Lanes<Width> best, multiplier, addend;
    if constexpr (Norm) {
      multiplier = load_lanes<Width>(call.multiplier + channel);
      addend = load_lanes<Width>(call.addend + channel);
    }
    std::int32_t place[Width];
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) {
      best.of[k] = Norm ? 0 : float_of_bits(0xff800000U);
      place[k] = Norm ? kNoPlace : rows.first * window.kernel_w + columns.first;
    }
    for (std::int32_t i = rows.first; i < rows.last; ++i) {
      const T* const x = pixel_row(static_cast<const T*>(call.x), {row.image, top + i},
                                   shape.height, shape.width, shape.channels) +
                         channel;
      PENSTOCK_UNROLL_BY(3)
      for (std::int32_t j = columns.first; j < columns.last; ++j) {
        Lanes<Width> value = load_lanes<Width>(x + (left + j) * shape.channels);
        PENSTOCK_UNROLL
        for (int k = 0; k < Width; ++k) {
          if constexpr (Norm) value.of[k] = value.of[k] * multiplier.of[k] + addend.of[k];
          // NaN wins, so that it is not hidden.
          const bool wins = value.of[k] > best.of[k] || value.of[k] != value.of[k];
          best.of[k] = wins ? value.of[k] : best.of[k];
          place[k] = wins ? i * window.kernel_w + j : place[k];
        }
      }
    }
    const std::int64_t at =
        ((std::int64_t{row.image} * shape.out_height + row.row) * shape.out_width + column) *
            shape.channels +
        channel;
    store_lanes(static_cast<T*>(call.y) + at, best);
    if (call.index != nullptr) store_bytes<Width>(call.index + at, place);
  }
};
template <class Launch>
void select(const MaxPoolForward& call, const Launch& launch) {
  const std::int32_t width = width_of(call.shape.channels);
  select_flags<MaxPoolForwardBody>(call, width, forward_geometry(call.shape, width), launch,
                                   call.multiplier != nullptr);
}

/// dx of each input element: Body::gather sums what the windows over it give it.
template <class Body, class T, int Width, class Block, class Call>
PENSTOCK_DEVICE void for_each_input(Block& block, const Call& call) {
  const PoolShape& shape = call.shape;
  block.for_each_thread([&](std::int32_t thread) {
    const ImageRow row = image_row_of(block, shape.height);
    T* const dx =
        pixel_row(static_cast<T*>(call.dx), row, shape.height, shape.width, shape.channels);
    for_each_group<Width>(block, thread, shape.width, shape.channels,
                          [&](std::int32_t column, std::int32_t channel) {
                            store_or_add(dx + column * shape.channels + channel,
                                         Body::gather(call, row, column, channel), call.accumulate);
                          });
  });
}

template <class T, int Width>
struct MaxPoolBackwardBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const MaxPoolBackward& call) {
    for_each_input<MaxPoolBackwardBody, T, Width>(block, call);
  }

  static PENSTOCK_DEVICE Lanes<Width> gather(const MaxPoolBackward& call, const ImageRow& row,
                                             std::int32_t column, std::int32_t channel) {
    const PoolShape& shape = call.shape;
    const Window& window = shape.window;
    const std::int32_t down = row.row + window.top, right = column + window.left;
    const Places rows = windows_over(down, window.kernel_h, window.stride, shape.out_height);
    const Places columns = windows_over(right, window.kernel_w, window.stride, shape.out_width);
    Lanes<Width> sums = {};
    for (std::int32_t i = rows.first; i < rows.last; ++i) {
      const std::int64_t first =
          ((std::int64_t{row.image} * shape.out_height + i) * shape.out_width) * shape.channels +
          channel;
      PENSTOCK_UNROLL_BY(2)
      for (std::int32_t j = columns.first; j < columns.last; ++j) {
        const std::int64_t at = first + j * shape.channels;
        const std::int32_t mine =
            (down - i * window.stride) * window.kernel_w + right - j * window.stride;
        const Packed<std::uint8_t, Width> index = load<Width>(call.index + at);
        const Lanes<Width> dy = load_lanes<Width>(static_cast<const T*>(call.dy) + at);
        PENSTOCK_UNROLL
        for (int k = 0; k < Width; ++k) {
          sums.of[k] += byte_of<Width>(index, k) == mine ? dy.of[k] : 0.F;
        }
      }
    }
    return sums;
  }
};
template <class Launch>
void select(const MaxPoolBackward& call, const Launch& launch) {
  const std::int32_t width = width_of(call.shape.channels);
  select_wide<MaxPoolBackwardBody>(call, width, backward_geometry(call.shape, width), launch);
}

// ---- average pools ----------------------------------------------------------

/// 1 / the number of elements by which a window's sum is divided.
PENSTOCK_DEVICE float share_of(const Window& window, const Places& rows, const Places& columns,
                               bool count_padding) {
  const std::int32_t all = window.kernel_h * window.kernel_w;
  const std::int32_t there = (rows.last - rows.first) * (columns.last - columns.first);
  return 1.F / static_cast<float>(count_padding ? all : there);
}

template <class T, int Width>
struct AvgPoolForwardBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const AvgPoolForward& call) {
    const PoolShape& shape = call.shape;
    block.for_each_thread([&](std::int32_t thread) {
      const ImageRow row = image_row_of(block, shape.out_height);
      T* const y = pixel_row(static_cast<T*>(call.y), row, shape.out_height, shape.out_width,
                             shape.channels);
      for_each_group<Width>(block, thread, shape.out_width, shape.channels,
                            [&](std::int32_t column, std::int32_t channel) {
                              store_lanes(y + column * shape.channels + channel,
                                          pool(call, row, column, channel));
                            });
    });
  }

 private:
  static PENSTOCK_DEVICE Lanes<Width> pool(const AvgPoolForward& call, const ImageRow& row,
                                           std::int32_t column, std::int32_t channel) {
    const PoolShape& shape = call.shape;
    const Window& window = shape.window;
    const std::int32_t top = row.row * window.stride - window.top;
    const std::int32_t left = column * window.stride - window.left;
    const Places rows = inside(top, window.kernel_h, shape.height);
    const Places columns = inside(left, window.kernel_w, shape.width);
    Lanes<Width> sums = {};
    for (std::int32_t i = rows.first; i < rows.last; ++i) {
      const T* const x = pixel_row(static_cast<const T*>(call.x), {row.image, top + i},
                                   shape.height, shape.width, shape.channels) +
                         channel;
      PENSTOCK_UNROLL_BY(4)
      for (std::int32_t j = columns.first; j < columns.last; ++j) {
        const Lanes<Width> value = load_lanes<Width>(x + (left + j) * shape.channels);
        PENSTOCK_UNROLL
        for (int k = 0; k < Width; ++k) sums.of[k] += value.of[k];
      }
    }
    const float share = share_of(window, rows, columns, call.count_padding);
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) sums.of[k] *= share;
    return sums;
  }
};
template <class Launch>
void select(const AvgPoolForward& call, const Launch& launch) {
  const std::int32_t width = width_of(call.shape.channels);
  select_wide<AvgPoolForwardBody>(call, width, forward_geometry(call.shape, width), launch);
}

template <class T, int Width>
struct AvgPoolBackwardBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const AvgPoolBackward& call) {
    for_each_input<AvgPoolBackwardBody, T, Width>(block, call);
  }

  static PENSTOCK_DEVICE Lanes<Width> gather(const AvgPoolBackward& call, const ImageRow& row,
                                             std::int32_t column, std::int32_t channel) {
    const PoolShape& shape = call.shape;
    const Window& window = shape.window;
    const std::int32_t stride = window.stride;
    const Places rows =
        windows_over(row.row + window.top, window.kernel_h, stride, shape.out_height);
    const Places columns =
        windows_over(column + window.left, window.kernel_w, stride, shape.out_width);
    Lanes<Width> sums = {};
    for (std::int32_t i = rows.first; i < rows.last; ++i) {
      const T* const dy = pixel_row(static_cast<const T*>(call.dy), {row.image, i},
                                    shape.out_height, shape.out_width, shape.channels) +
                          channel;
      const Places in_rows = inside(i * stride - window.top, window.kernel_h, shape.height);
      PENSTOCK_UNROLL_BY(2)
      for (std::int32_t j = columns.first; j < columns.last; ++j) {
        const Places in_columns = inside(j * stride - window.left, window.kernel_w, shape.width);
        const float share = share_of(window, in_rows, in_columns, call.count_padding);
        const Lanes<Width> value = load_lanes<Width>(dy + j * shape.channels);
        PENSTOCK_UNROLL
        for (int k = 0; k < Width; ++k) sums.of[k] += share * value.of[k];
      }
    }
    return sums;
  }
};
template <class Launch>
void select(const AvgPoolBackward& call, const Launch& launch) {
  const std::int32_t width = width_of(call.shape.channels);
  select_wide<AvgPoolBackwardBody>(call, width, backward_geometry(call.shape, width), launch);
}

}  // namespace penstock::gpu
