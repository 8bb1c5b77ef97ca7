// SPDX-License-Identifier: Apache-2.0
// Normalises the pixels of a batch before the model's first operator: (pixel - mean) / deviation,
// by channel. The device does it, or the host in the slots of a ring.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dataflow/batch.h"
#include "dataflow/decoder.h"
#include "dataflow/options.h"

namespace penstock {

struct ChannelStatistics {
  float mean, deviation;
};

/// Images with three channels: ImageNet's statistics over RGB (as torchvision and tensorpack use
/// them), times 255. Other images: maps 0..255 to -1..1.
constexpr ChannelStatistics channel_statistics(std::int32_t channel,
                                               std::int32_t channels) noexcept {
  constexpr std::array kImageNet = {ChannelStatistics{123.675F, 58.395F},
                                    ChannelStatistics{116.28F, 57.12F},
                                    ChannelStatistics{103.53F, 57.375F}};
  if (channels == 3) return kImageNet[static_cast<std::size_t>(channel)];
  return {127.5F, 127.5F};
}

/// The same statistics as a multiplication and an addition.
struct ChannelScale {
  float factor = 1, offset = 0;
};
constexpr ChannelScale channel_scale(std::int32_t channel, std::int32_t channels) noexcept {
  const ChannelStatistics of = channel_statistics(channel, channels);
  return {1 / of.deviation, -of.mean / of.deviation};
}
/// The normalisation that the device still has to do: none if the feeder did it.
constexpr ChannelScale channel_scale(std::int32_t channel, const BatchSpec& batch) noexcept {
  return batch.normalised ? ChannelScale{} : channel_scale(channel, batch.image.channels);
}

/// Normalises interleaved pixels into as many elements of `type`, f32 or f16. f16 is rounded to
/// nearest, ties to even. At most 4 channels.
void normalise(std::span<const std::uint8_t> pixels, std::int32_t channels, DType type,
               std::byte* to);

/// A decoder for rows without gaps whose type is f32 or f16. `decoder` writes the image's bytes
/// into a reused buffer, and normalise() converts them into the row.
std::unique_ptr<Decoder> make_normalising_decoder(std::unique_ptr<Decoder> decoder);

// ---- the option of feeders --------------------------------------------------

/// Of feeders that can normalise pixels on the host.
inline constexpr OptionSpec kNormaliseOption{
    "normalise", "device",
    "where pixels are normalised: device (bytes are copied), or on the CPU to f32 or f16 (4 or 2 "
    "times as many bytes are copied)"};

/// Adjusts the batch spec to the option. Throws ConfigError if the value is unknown.
void normalise_batches(const Options& options, BatchSpec& batches);

/// Throws ConfigError if `batches` differ from what the option says. This happens in producers for
/// other processes, which send bytes.
void check_normalised(const Options& options, const BatchSpec& batches);

}  // namespace penstock
