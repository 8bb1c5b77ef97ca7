// SPDX-License-Identifier: Apache-2.0
// Kernels that sum over rows, and that copy ranges of channels from tensor to tensor.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/columns.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

template <class T, int Width>
struct ColumnSumsBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 3;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const ColumnSums& call) {
    const Tiling tiling = tiling_of(call.channels / Width, kSumTile);
    auto& shared = block.template shared<ColumnSumsShared<1, Width>>();
    block.for_each_thread([&](std::int32_t thread) {
      const Column column = column_of<Width>(block, tiling, thread, call.rows, call.channels);
      const T* const dy = static_cast<const T*>(call.dy) + column.channel;
      Lanes<Width> sums[1] = {};
      walk<at_once<T>(8)>(
          column, [&](std::int64_t row) { return load<Width>(dy + row * call.channels); },
          [&](std::int64_t, const Packed<T, Width>& packed) {
            const Lanes<Width> lanes = unpack<T, Width>(packed);
            PENSTOCK_UNROLL
            for (int k = 0; k < Width; ++k) sums[0].of[k] += lanes.of[k];
          });
      keep_sums(shared, thread, sums);
    });
    block.for_each_thread([&](std::int32_t thread) {
      write_sums(block, tiling, thread, shared, call.channels, call.partial);
    });
  }
};
template <class Launch>
void select(const ColumnSums& call, const Launch& launch) {
  select_wide<ColumnSumsBody>(call, width_of(call.channels), sum_geometry(call.rows, call.channels),
                              launch);
}

struct ColumnFinishBody {
  static constexpr std::int32_t kThreads = kFinishThreads, kPerMultiprocessor = 1;

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const ColumnFinish& call) {
    finish_columns<1>(block, call.partial, call.blocks, call.channels,
                      [&](std::int32_t channel, const double(&sums)[1]) {
                        call.sums[channel] = static_cast<float>(sums[0]);
                      });
  }
};
template <class Launch>
void select(const ColumnFinish& call, const Launch& launch) {
  launch(Selected<ColumnFinishBody>{}, finish_geometry(call.channels), call);
}

/// The channels of `to` that a copy writes: [first, first + count).
struct WrittenChannels {
  std::int32_t first, count;
};
PENSTOCK_HOST_DEVICE inline WrittenChannels written(const CopyChannels& call) {
  if (call.zero_rest) return {0, call.to_channels};
  return {call.to_first, call.channels};
}

template <class T, int Width>
struct CopyChannelsBody {
  static constexpr std::int32_t kThreads = kBlockThreads, kPerMultiprocessor = 4;
  struct Item {
    Packed<T, Width> from, to;
  };

  template <class Block>
  static PENSTOCK_DEVICE void run(Block& block, const CopyChannels& call) {
    const WrittenChannels range = written(call);
    const Tiling tiling = tiling_of(range.count / Width, kApplyTile);
    block.for_each_thread([&](std::int32_t thread) {
      const Column column = column_of<Width>(block, tiling, thread, call.rows, range.count);
      const std::int32_t to_channel = range.first + column.channel;
      const std::int32_t place = to_channel - call.to_first;
      if (place >= 0 && place < call.channels) {
        copy(call, column, place, to_channel);
      } else {
        T* const to = static_cast<T*>(call.to) + to_channel;
        for (std::int64_t row = column.first; row < column.last; row += column.step) {
          store_lanes(to + row * call.to_channels, Lanes<Width>{});
        }
      }
    });
  }

 private:
  static PENSTOCK_DEVICE void copy(const CopyChannels& call, const Column& column,
                                   std::int32_t place, std::int32_t to_channel) {
    const T* const from = static_cast<const T*>(call.from) + call.from_first + place;
    T* const to = static_cast<T*>(call.to) + to_channel;
    walk<at_once<T>(4)>(
        column,
        [&](std::int64_t row) {
          Item item;
          item.from = load<Width>(from + row * call.from_channels);
          item.to = item.from;
          if (call.accumulate) item.to = load<Width>(to + row * call.to_channels);
          return item;
        },
        [&](std::int64_t row, const Item& item) {
          if (!call.accumulate) return store<Width>(to + row * call.to_channels, item.from);
          const Lanes<Width> from_lanes = unpack<T, Width>(item.from);
          Lanes<Width> lanes = unpack<T, Width>(item.to);
          PENSTOCK_UNROLL
          for (int k = 0; k < Width; ++k) lanes.of[k] += from_lanes.of[k];
          store_lanes(to + row * call.to_channels, lanes);
        });
  }
};
template <class Launch>
void select(const CopyChannels& call, const Launch& launch) {
  const std::int32_t width = width_of(call.channels | call.from_channels | call.from_first |
                                      call.to_channels | call.to_first);
  select_wide<CopyChannelsBody>(call, width, apply_geometry(call.rows, written(call).count / width),
                                launch);
}

}  // namespace penstock::gpu
