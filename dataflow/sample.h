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

/// The layout of pixels in a sample that is not encoded: 8 bits per channel, without gaps.
struct PixelLayout {
  std::int32_t width = 0, height = 0;
  std::int32_t channels = 3;  ///< 1 (grey) or 3
  bool planar = false;        ///< true: [C,H,W]; false: [H,W,C]
  bool bgr = false;           ///< true: blue first; false: red first

  /// True if the sample has no layout: its image is encoded.
  constexpr bool empty() const noexcept { return width == 0; }
  constexpr std::uint64_t bytes() const noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(width)} * static_cast<std::uint32_t>(height) *
           static_cast<std::uint32_t>(channels);
  }
  bool operator==(const PixelLayout&) const = default;
};

/// The place of an object in an image, as shares of its width and height.
struct ObjectBox {
  float left = 0, top = 0, right = 1, bottom = 1;
  bool operator==(const ObjectBox&) const = default;
};

struct Sample {
  std::vector<std::byte> bytes;    ///< as read; keeps its capacity from sample to sample
  std::vector<std::byte> storage;  ///< whole blocks as read; `lent` is then a part of it
  /// Used instead of `bytes` if the source holds the bytes itself and lives as long as the sample,
  /// or if they are a part of `storage`.
  std::span<const std::byte> lent;
  /// If set, keeps the memory behind `lent` alive. Reset it once the sample is used.
  std::shared_ptr<const void> owner;
  std::int32_t label = -1;
  std::uint64_t index = 0;  ///< the sample's index in the source, the same in every epoch
  std::uint64_t epoch = 0;
  std::string file;  ///< the file that it comes from; keeps its capacity
  std::uint64_t offset = 0;
  PixelLayout layout{};          ///< of the content, if the source gives pixels
  std::vector<ObjectBox> boxes;  ///< of objects, if the data have them; keeps its capacity

  /// The encoded image, or its pixels if the source gives pixels.
  std::span<const std::byte> content() const noexcept {
    return lent.empty() ? std::span<const std::byte>(bytes) : lent;
  }
};

/// The destination of an image: a row of a batch.
struct ImageView {
  std::byte* data = nullptr;
  ImageShape shape{};
  DType dtype = DType::u8;
  std::ptrdiff_t row_bytes = 0;  ///< distance from one line of pixels to the next
};

}  // namespace penstock
