// SPDX-License-Identifier: Apache-2.0
// How threads walk over [rows, channels]. Each thread stays on its `Width` channels, keeps their
// constants, and processes a share of the rows. Neighbouring threads access neighbouring memory.
#pragma once

#include <cstdint>

#include "trainer/backends/gpu/kernels/element.h"
#include "trainer/backends/gpu/kernels/geometry.h"

namespace penstock::gpu {

/// One thread's part: rows `first`, `first + step`, ... below `last` of `Width` channels.
struct Column {
  std::int32_t channel;
  std::int32_t step;
  std::int64_t first, last;
};

template <int Width, class Block>
PENSTOCK_DEVICE Column column_of(const Block& block, const Tiling& tiling, std::int32_t thread,
                                 std::int64_t rows, std::int32_t channels) {
  const std::int32_t lane = thread / tiling.tile;
  const std::int32_t channel =
      (block.column_block() * tiling.tile + thread - lane * tiling.tile) * Width;
  const std::int64_t share = divide_up<std::int64_t>(rows, block.row_blocks());
  const std::int64_t first = block.row_block() * share;
  const std::int64_t last = channel < channels ? smaller(first + share, rows) : 0;
  return {channel, tiling.lanes, first + lane, last};
}

/// The number of rows that a thread loads at once: `most`, or half of it for f32, which fills the
/// same number of registers.
template <class T>
PENSTOCK_HOST_DEVICE constexpr int at_once(int most) {
  return sizeof(T) == 4 ? most / 2 : most;
}

/// For all rows of a column: Item item = get(row), then use(row, item). Gets `Unroll` rows before
/// it uses the first. get() may be called again for a row that was used.
template <int Unroll, class Get, class Use>
PENSTOCK_DEVICE void walk(const Column& column, const Get& get, const Use& use) {
  for (std::int64_t row = column.first; row < column.last; row += Unroll * column.step) {
    decltype(get(row)) items[Unroll];
    PENSTOCK_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      items[u] = get(smaller(row + u * column.step, column.last - 1));
    }
    PENSTOCK_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      if (row + u * column.step < column.last) use(row + u * column.step, items[u]);
    }
  }
}

/// The sums of a block's threads: `Sums` sums for each channel of a thread.
template <int Sums, int Width>
struct ColumnSumsShared {
  float of[Sums][Width][kBlockThreads];
};

template <int Sums, int Width>
PENSTOCK_DEVICE void keep_sums(ColumnSumsShared<Sums, Width>& shared, std::int32_t thread,
                               const Lanes<Width> (&sums)[Sums]) {
  PENSTOCK_UNROLL
  for (int s = 0; s < Sums; ++s) {
    PENSTOCK_UNROLL
    for (int k = 0; k < Width; ++k) shared.of[s][k][thread] = sums[s].of[k];
  }
}

/// Adds the rows of a block in order: partial[row block][sum][channel].
template <int Sums, int Width, class Block>
PENSTOCK_DEVICE void write_sums(const Block& block, const Tiling& tiling, std::int32_t thread,
                                const ColumnSumsShared<Sums, Width>& shared, std::int32_t channels,
                                float* partial) {
  for (std::int32_t i = thread; i < Sums * Width * tiling.tile; i += block.threads()) {
    const std::int32_t plane = i / tiling.tile, group = i - plane * tiling.tile;
    const std::int32_t s = plane / Width, k = plane - s * Width;
    const std::int32_t channel = (block.column_block() * tiling.tile + group) * Width + k;
    if (channel >= channels) continue;
    float sum = 0;
    for (std::int32_t lane = 0; lane < tiling.lanes; ++lane) {
      sum += shared.of[s][k][lane * tiling.tile + group];
    }
    const std::int64_t row = std::int64_t{block.row_block()} * Sums + s;
    partial[row * channels + channel] = sum;
  }
}

// ---- the sums of all blocks -------------------------------------------------

// Adds the partial sums of blocks, in an order that depends only on the number of blocks.

constexpr std::int32_t kFinishThreads = kFinishChannels * kFinishLanes;

/// Calls write(channel, sums) with the sums over `blocks` of partial[block][Sums][channels]. Each
/// lane of threads adds its own range of blocks; one thread then adds the lanes.
template <int Sums, class Block, class Write>
PENSTOCK_DEVICE void finish_columns(Block& block, const float* partial, std::int32_t blocks,
                                    std::int32_t channels, const Write& write) {
  struct Shared {
    double of[Sums][kFinishLanes][kFinishChannels];
  };
  auto& shared = block.template shared<Shared>();
  const std::int32_t first_channel = block.row_block() * kFinishChannels;
  block.for_each_thread([&](std::int32_t thread) {
    const std::int32_t lane = thread / kFinishChannels, place = thread % kFinishChannels;
    const std::int32_t share = divide_up(blocks, kFinishLanes);
    const std::int32_t last = smaller((lane + 1) * share, blocks);
    const std::int32_t channel = first_channel + place;
    double sums[Sums] = {};
    if (channel < channels) {
      PENSTOCK_UNROLL_BY(4)
      for (std::int32_t b = lane * share; b < last; ++b) {
        PENSTOCK_UNROLL
        for (int s = 0; s < Sums; ++s) {
          sums[s] += double{partial[(b * Sums + s) * channels + channel]};
        }
      }
    }
    PENSTOCK_UNROLL
    for (int s = 0; s < Sums; ++s) shared.of[s][lane][place] = sums[s];
  });
  block.for_each_thread([&](std::int32_t thread) {
    const std::int32_t channel = first_channel + thread;
    if (thread >= kFinishChannels || channel >= channels) return;
    double sums[Sums] = {};
    PENSTOCK_UNROLL
    for (int s = 0; s < Sums; ++s) {
      for (std::int32_t lane = 0; lane < kFinishLanes; ++lane) {
        sums[s] += shared.of[s][lane][thread];
      }
    }
    write(channel, sums);
  });
}

}  // namespace penstock::gpu
