// SPDX-License-Identifier: Apache-2.0
// Average pools, forward and backward.
#pragma once

#include "trainer/backends/gpu/kernels/pool.h"

namespace penstock::gpu {

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
  with_type(call.type, [&]<class T>(T) {
    with_width(width_of(call.shape.channels) == kWide, [&]<class Width>(Width) {
      launch(Selected<AvgPoolForwardBody<T, Width::value>>{},
             forward_geometry(call.shape, Width::value), call);
    });
  });
}

template <class T, int Width>
struct AvgPoolBackwardBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const AvgPoolBackward& call) {
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
  with_type(call.type, [&]<class T>(T) {
    with_width(width_of(call.shape.channels) == kWide, [&]<class Width>(Width) {
      launch(Selected<AvgPoolBackwardBody<T, Width::value>>{},
             backward_geometry(call.shape, Width::value), call);
    });
  });
}

}  // namespace penstock::gpu
