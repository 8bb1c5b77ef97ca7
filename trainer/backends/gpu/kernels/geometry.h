// SPDX-License-Identifier: Apache-2.0
// Grids and blocks of every kernel, for both launchers. They depend only on the call and on the
// shape of an H200 (132 multiprocessors), so sums have the same order on every device.
#pragma once

#include <cstdint>

#include "trainer/backends/gpu/kernel_calls.h"
#include "trainer/backends/gpu/kernels/block.h"

namespace penstock::gpu {

struct Geometry {
  std::int32_t row_blocks = 1, column_blocks = 1, threads = 1;
};

constexpr std::int32_t kMultiprocessors = 132;
/// The threads per block of most kernels.
constexpr std::int32_t kBlockThreads = 256;
/// The channels that a thread processes at once if their number allows it: 16 bytes of a short
/// type.
constexpr std::int32_t kWide = 8;
/// The most groups of channels side by side in a block. kSumTile is for blocks that sum, so that
/// they sum many rows; kApplyTile is for other blocks, so that they read long stretches.
constexpr std::int32_t kSumTile = 32, kApplyTile = 256;
/// All summing blocks fit on the device at once, three per multiprocessor.
constexpr std::int32_t kMostSumBlocks = 3 * kMultiprocessors;
/// Each multiprocessor gets a whole number of blocks: 12 divides into waves of 2, 3 and 4 blocks.
constexpr std::int32_t kMostApplyBlocks = 12 * kMultiprocessors;

PENSTOCK_HOST_DEVICE constexpr std::int32_t width_of(std::int32_t channels) {
  return channels % kWide == 0 ? kWide : 1;
}

/// The shape of a block over [rows, groups of channels]: `tile` groups side by side, `lanes` rows.
struct Tiling {
  std::int32_t tile, tiles, lanes;
};
PENSTOCK_HOST_DEVICE constexpr Tiling tiling_of(std::int32_t groups, std::int32_t widest) {
  const std::int32_t tiles = divide_up(groups, widest);
  const std::int32_t tile = divide_up(groups, tiles);
  return {tile, tiles, kBlockThreads / tile};
}

/// Enough blocks to leave each thread at least `least` rows; between 1 and `most` over all tiles.
constexpr std::int32_t row_blocks_of(const Tiling& tiling, std::int64_t rows, std::int32_t least,
                                     std::int32_t most) {
  const std::int64_t chunks = rows / (std::int64_t{tiling.lanes} * least);
  return static_cast<std::int32_t>(
      larger<std::int64_t>(1, smaller<std::int64_t>(chunks, larger(1, most / tiling.tiles))));
}

constexpr Geometry sum_geometry(std::int64_t rows, std::int32_t channels) {
  const Tiling tiling = tiling_of(channels / width_of(channels), kSumTile);
  return {row_blocks_of(tiling, rows, 16, kMostSumBlocks), tiling.tiles,
          tiling.tile * tiling.lanes};
}
/// A thread processes one of the `groups` of channels at once.
constexpr Geometry apply_geometry(std::int64_t rows, std::int32_t groups) {
  const Tiling tiling = tiling_of(groups, kApplyTile);
  return {row_blocks_of(tiling, rows, 8, kMostApplyBlocks), tiling.tiles,
          tiling.tile * tiling.lanes};
}
/// One thread per item, in at most `most` blocks.
constexpr Geometry linear_geometry(std::int64_t items, std::int32_t most = kMostApplyBlocks) {
  const std::int64_t blocks =
      smaller<std::int64_t>(divide_up<std::int64_t>(items, kBlockThreads), most);
  return {static_cast<std::int32_t>(larger<std::int64_t>(1, blocks)), 1, kBlockThreads};
}
/// One block per row of images' pixels. Its threads share the `items` of the row equally.
constexpr Geometry image_row_geometry(std::int32_t rows, std::int32_t items) {
  const std::int32_t turns = divide_up(items, kBlockThreads);
  return {rows, 1, divide_up(divide_up(items, turns), kWarp) * kWarp};
}

/// Threads over channels and over partial sums in the kernels that add partial sums.
constexpr std::int32_t kFinishChannels = 32, kFinishLanes = 32;
constexpr Geometry finish_geometry(std::int32_t channels) {
  return {divide_up(channels, kFinishChannels), 1, kFinishChannels * kFinishLanes};
}

}  // namespace penstock::gpu
