// SPDX-License-Identifier: Apache-2.0
// What devices do to the bytes of a batch before the first operator: (pixel - mean) / deviation, by
// channel.
#pragma once

#include <array>
#include <cstdint>

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

}  // namespace penstock
