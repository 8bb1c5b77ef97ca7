// SPDX-License-Identifier: Apache-2.0
// Batch norm's sums over rows, the values that follow from them, and the running statistics. Sums
// are f32 in a thread and in a block, and f64 over blocks.
#pragma once

#include <cmath>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/finish.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

template <class T, int Width>
struct BatchNormSumsBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 3;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const BatchNormSums& call) {
    const Tiling tiling = tiling_of(call.channels / Width, kSumTile);
    auto& shared = block.template shared<ColumnSumsShared<2, Width>>();
    block.for_each_thread([&](std::int32_t thread) {
      const Column column = column_of<Width>(block, tiling, thread, call.rows, call.channels);
      const T* const x = static_cast<const T*>(call.x) + column.channel;
      Lanes<Width> sums[2] = {};
      if (column.first < column.last) {
        const Lanes<Width> pivot = load_lanes<Width>(x);
        walk<at_once<T>(8)>(
            column, [&](std::int64_t row) { return load<Width>(x + row * call.channels); },
            [&](std::int64_t, const Packed<T, Width>& packed) {
              const Lanes<Width> lanes = unpack<T, Width>(packed);
              PENSTOCK_UNROLL
              for (int k = 0; k < Width; ++k) {
                const float d = lanes.of[k] - pivot.of[k];
                sums[0].of[k] += d;
                sums[1].of[k] += d * d;
              }
            });
      }
      keep_sums(shared, thread, sums);
    });
    block.for_each_thread([&](std::int32_t thread) {
      write_sums(block, tiling, thread, shared, call.channels, call.partial);
    });
  }
};
template <class Launch>
void select(const BatchNormSums& call, const Launch& launch) {
  with_type(call.type, [&]<class T>(T) {
    with_width(width_of(call.channels) == kWide, [&]<class Width>(Width) {
      launch(Selected<BatchNormSumsBody<T, Width::value>>{}, sum_geometry(call.rows, call.channels),
             call);
    });
  });
}

template <class T>
struct BatchNormFinishBody {
  static constexpr std::int32_t kThreads = kFinishThreads, kPerMultiprocessor = 1;

  static PENSTOCK_DEVICE void write(const BatchNormFinish& call, std::int32_t channel,
                                    const double (&sums)[2]) {
    const auto rows = static_cast<double>(call.rows);
    const T* const first_row = static_cast<const T*>(call.pivot);
    const double pivot = first_row == nullptr ? 0 : double{to_float(first_row[channel])};
    const double shifted = sums[0] / rows, mean = pivot + shifted;
    const double variance = larger(0., sums[1] / rows - shifted * shifted);
    const double inverse = 1 / sqrt(variance + double{call.epsilon});
    const double multiplier = double{call.scale[channel]} * inverse;
    const auto addend = static_cast<float>(double{call.shift[channel]} - mean * multiplier);
    call.mean[channel] = static_cast<float>(mean);
    call.inverse_deviation[channel] = static_cast<float>(inverse);
    call.multiplier[channel] = static_cast<float>(multiplier);
    call.addend[channel] = addend;
    if (call.running_mean != nullptr) {
      const double keep = 1 - double{call.momentum}, take = double{call.momentum};
      const double unbiased = variance * rows / larger(1., rows - 1);
      float &old_mean = call.running_mean[channel], &old = call.running_variance[channel];
      old_mean = static_cast<float>(keep * double{old_mean} + take * mean);
      old = static_cast<float>(keep * double{old} + take * unbiased);
    }
    if (call.short_multiplier != nullptr) {
      static_cast<T*>(call.short_multiplier)[channel] =
          from_float<T>(static_cast<float>(multiplier));
      static_cast<T*>(call.short_addend)[channel] = from_float<T>(addend);
    }
  }
  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const BatchNormFinish& call) {
    finish_columns<2>(
        block, call.partial, call.blocks, call.channels,
        [&](std::int32_t channel, const double(&sums)[2]) { write(call, channel, sums); });
  }
};
template <class Launch>
void select(const BatchNormFinish& call, const Launch& launch) {
  with_type(call.type, [&]<class T>(T) {
    launch(Selected<BatchNormFinishBody<T>>{}, finish_geometry(call.channels), call);
  });
}

struct BatchNormFromRunningBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 1;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const BatchNormFromRunning& call) {
    block.for_each_thread([&](std::int32_t thread) {
      const std::int32_t channel = block.row_block() * block.threads() + thread;
      if (channel >= call.channels) return;
      const double multiplier = double{call.scale[channel]} /
                                sqrt(double{call.running_variance[channel]} + double{call.epsilon});
      call.multiplier[channel] = static_cast<float>(multiplier);
      call.addend[channel] = static_cast<float>(double{call.shift[channel]} -
                                                double{call.running_mean[channel]} * multiplier);
    });
  }
};
template <class Launch>
void select(const BatchNormFromRunning& call, const Launch& launch) {
  launch(Selected<BatchNormFromRunningBody>{},
         Geometry{divide_up(call.channels, kBlockThreads), 1, kBlockThreads}, call);
}

}  // namespace penstock::gpu
