// SPDX-License-Identifier: Apache-2.0
// One image on its way from a Source to a row of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataflow/batch.h"

namespace penstock {

/// How pixels lie in a sample that is not encoded: 8 bits a channel, without gaps.
struct PixelLayout {
  std::int32_t width = 0, height = 0;
  std::int32_t channels = 3;  ///< 1 (grey) or 3
  bool planar = false;        ///< [C,H,W]; else [H,W,C]
  bool bgr = false;           ///< blue first; else red first

  /// Describes nothing: the image is encoded.
  constexpr bool empty() const noexcept { return width == 0; }
  constexpr std::uint64_t bytes() const noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(width)} * static_cast<std::uint32_t>(height) *
           static_cast<std::uint32_t>(channels);
  }
  bool operator==(const PixelLayout&) const = default;
};

struct Sample {
  std::vector<std::byte> bytes;    ///< as read; keeps its capacity from sample to sample
  std::vector<std::byte> storage;  ///< of what is read in blocks, whose content is then lent
  /// Instead of `bytes`, where the source holds them itself and lives as long as the sample, or
  /// where they are a part of `storage`.
  std::span<const std::byte> lent;
  /// Where what is lent lives no longer than this: whoever is done with the sample lets it go.
  std::shared_ptr<const void> owner;
  std::int32_t label = -1;
  std::uint64_t index = 0;  ///< of the sample within the source: the same in every epoch
  std::uint64_t epoch = 0;
  std::string file;  ///< that it comes from; keeps its capacity from sample to sample
  std::uint64_t offset = 0;
  PixelLayout layout{};  ///< of the content, where the source gives pixels

  /// The encoded image, or its pixels where the source gives those.
  std::span<const std::byte> content() const noexcept {
    return lent.empty() ? std::span<const std::byte>(bytes) : lent;
  }
};

/// Where an image goes: a row of a batch.
struct ImageView {
  std::byte* data = nullptr;
  ImageShape shape{};
  DType dtype = DType::u8;
  std::ptrdiff_t row_bytes = 0;  ///< from one line of pixels to the next
};

}  // namespace penstock
