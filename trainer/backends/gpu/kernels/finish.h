// SPDX-License-Identifier: Apache-2.0
// Adds the partial sums of blocks, in an order that depends only on the number of blocks.
#pragma once

#include "trainer/backends/gpu/kernels/geometry.h"

namespace penstock::gpu {

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
