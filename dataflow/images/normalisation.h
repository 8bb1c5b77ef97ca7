// SPDX-License-Identifier: Apache-2.0
// What becomes of the bytes of a batch before the first operator: (pixel - mean) / deviation, by
// channel. Devices do it, or the host in the slots of a ring.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataflow/batch.h"

namespace penstock {

struct ChannelStatistics {
  float mean, deviation;
};

/// Images of three channels: ImageNet's statistics over RGB (as torchvision and tensorpack use
/// them), times 255. Others: 0..255 to -1..1.
constexpr ChannelStatistics channel_statistics(std::int32_t channel,
                                               std::int32_t channels) noexcept {
  constexpr std::array kImageNet = {ChannelStatistics{123.675F, 58.395F},
                                    ChannelStatistics{116.28F, 57.12F},
                                    ChannelStatistics{103.53F, 57.375F}};
  if (channels == 3) return kImageNet[static_cast<std::size_t>(channel)];
  return {127.5F, 127.5F};
}

/// The same as a multiplication and an addition, as everybody computes it.
struct ChannelScale {
  float factor = 1, offset = 0;
};
constexpr ChannelScale channel_scale(std::int32_t channel, std::int32_t channels) noexcept {
  const ChannelStatistics of = channel_statistics(channel, channels);
  return {1 / of.deviation, -of.mean / of.deviation};
}
/// What is left to be done to the pixels of such batches: nothing where the feeder did it.
constexpr ChannelScale channel_scale(std::int32_t channel, const BatchSpec& batch) noexcept {
  return batch.normalised ? ChannelScale{} : channel_scale(channel, batch.image.channels);
}

/// Normalises interleaved pixels into as many elements of `type`, f32 or f16, the latter rounded to
/// nearest, ties to even. At most 4 channels.
void normalise(std::span<const std::uint8_t> pixels, std::int32_t channels, DType type,
               std::byte* to);

}  // namespace penstock
