// SPDX-License-Identifier: Apache-2.0
// Builds a batch of image files in Penstock's message format (framed_format.md), image by image, in
// memory that is reused.
//
// Thread-safety: one thread at a time. No thread may write while libzmq holds a message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "feeders/remote/wire/framed_header.h"

namespace penstock::remote {

class EncodedBatch {
 public:
  /// The header and the frames after it.
  static constexpr std::size_t kFrames = 4;

  /// Starts a new batch with room for `images`. Keeps the memory.
  void begin(std::size_t images);
  /// Adds a copy of an image file. Throws DataError, which names `file`, if it is larger than the
  /// format allows.
  void add(std::span<const std::byte> content, std::int32_t label, std::string_view file);

  std::size_t images() const noexcept { return labels_.size(); }
  /// Of the frames after the header.
  std::uint64_t payload_bytes() const noexcept;
  /// CRC32C of the frames after the header.
  std::uint32_t checksum() const noexcept;
  /// Writes the first frame, and fills in `images` and `payload_bytes`. Call after all images are
  /// added.
  void write_header(FramedHeader header) noexcept;
  /// Valid until begin() or add().
  std::array<std::span<std::byte>, kFrames> frames() noexcept;

 private:
  std::array<std::byte, kFramedHeaderBytes> header_{};
  std::vector<std::uint32_t> lengths_;
  std::vector<std::byte> files_;
  std::vector<std::int32_t> labels_;
};

}  // namespace penstock::remote
