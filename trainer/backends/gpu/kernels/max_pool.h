// SPDX-License-Identifier: Apache-2.0
// Max pools, forward and backward, also of a batch norm's ReLU.
#pragma once

#include "trainer/backends/gpu/kernels/pool.h"

namespace penstock::gpu {

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
  with_type(call.type, [&]<class T>(T) {
    with_width(width_of(call.shape.channels) == kWide, [&]<class Width>(Width) {
      with_flag(call.multiplier != nullptr, [&]<class Norm>(Norm) {
        launch(Selected<MaxPoolForwardBody<T, Width::value, Norm::value>>{},
               forward_geometry(call.shape, Width::value), call);
      });
    });
  });
}

template <class T, int Width>
struct MaxPoolBackwardBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const MaxPoolBackward& call) {
    const PoolShape& shape = call.shape;
    block.for_each_thread([&](std::int32_t thread) {
      const ImageRow row = image_row_of(block, shape.height);
      T* const dx =
          pixel_row(static_cast<T*>(call.dx), row, shape.height, shape.width, shape.channels);
      for_each_group<Width>(block, thread, shape.width, shape.channels,
                            [&](std::int32_t column, std::int32_t channel) {
                              put<Width>(dx + column * shape.channels + channel,
                                         gather(call, row, column, channel), call.accumulate);
                            });
    });
  }

 private:
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
  with_type(call.type, [&]<class T>(T) {
    with_width(width_of(call.shape.channels) == kWide, [&]<class Width>(Width) {
      launch(Selected<MaxPoolBackwardBody<T, Width::value>>{},
             backward_geometry(call.shape, Width::value), call);
    });
  });
}

}  // namespace penstock::gpu
