// SPDX-License-Identifier: Apache-2.0
// Dropout with a mask that depends on the seed, the node and the step.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"
#include "trainer/dropout.h"

namespace penstock::gpu {

template <class T, int Width>
struct DropoutApplyBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const DropoutApply& call) {
    const Tiling tiling = tiling_of(call.channels / Width, kApplyTile);
    const std::int64_t rows = call.images * call.pixels_per_image;
    block.for_each_thread([&](std::int32_t thread) {
      const DropoutMask mask(call.seed, call.scalars->step, call.node, call.rate);
      const float kept_share = 1.F - call.rate;
      const Column column = column_of<Width>(block, tiling, thread, rows, call.channels);
      for (std::int64_t row = column.first; row < column.last; row += column.step) {
        const std::int64_t image = row / call.pixels_per_image;
        const std::int64_t plane = image * call.channels + column.channel;
        const std::int64_t pixel = row - image * call.pixels_per_image;
        const std::int64_t at = row * call.channels + column.channel;
        Lanes<Width> y = load_lanes<Width>(static_cast<const T*>(call.x) + at);
        Lanes<Width> old = {};
        if (call.accumulate) old = load_lanes<Width>(static_cast<const T*>(call.y) + at);
        PENSTOCK_UNROLL
        for (int k = 0; k < Width; ++k) {
          const std::int64_t element = (plane + k) * call.pixels_per_image + pixel;
          const bool keeps = mask.keeps(static_cast<std::uint64_t>(element));
          y.of[k] = old.of[k] + (keeps ? y.of[k] / kept_share : 0.F);
        }
        store_lanes(static_cast<T*>(call.y) + at, y);
      }
    });
  }
};
template <class Launch>
void select(const DropoutApply& call, const Launch& launch) {
  with_type(call.type, [&]<class T>(T) {
    with_width(width_of(call.channels) == kWide, [&]<class Width>(Width) {
      launch(Selected<DropoutApplyBody<T, Width::value>>{},
             apply_geometry(call.images * call.pixels_per_image, call.channels / Width::value),
             call);
    });
  });
}

}  // namespace penstock::gpu
