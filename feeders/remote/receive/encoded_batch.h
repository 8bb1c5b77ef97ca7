// SPDX-License-Identifier: Apache-2.0
// A batch of image files as a message of Penstock's own format has it (framed_format.md), built up
// image by image in memory that is used again.
//
// Thread-safety: one thread at a time; while a message lies with libzmq, nobody writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dataflow/wire/framed_header.h"

namespace penstock {

class EncodedBatch {
 public:
  /// The header and what stands behind it.
  static constexpr std::size_t kFrames = 4;

  /// Begins anew, with room for so many images. Memory stays.
  void begin(std::size_t images);
  /// Adds the bytes of an image file, which are copied. Throws DataError, naming `file`, where it
  /// is larger than a message can say.
  void add(std::span<const std::byte> content, std::int32_t label, std::string_view file);

  std::size_t images() const noexcept { return labels_.size(); }
  /// Of the frames behind the header.
  std::uint64_t payload_bytes() const noexcept;
  /// CRC32C of the frames behind the header.
  std::uint32_t checksum() const noexcept;
  /// Writes the first frame; `images` and `payload_bytes` are filled in. Once all images are there.
  void write_header(FramedHeader header) noexcept;
  /// Valid until begin or add.
  std::array<std::span<std::byte>, kFrames> frames() noexcept;

 private:
  std::array<std::byte, kFramedHeaderBytes> header_{};
  std::vector<std::uint32_t> lengths_;
  std::vector<std::byte> files_;
  std::vector<std::int32_t> labels_;
};

}  // namespace penstock
