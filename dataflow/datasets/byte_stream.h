// SPDX-License-Identifier: Apache-2.0
// A stream of bytes that can be read or skipped. Parsers of archives use it for files in memory and
// for files that are decompressed while they are read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace penstock::datasets {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills `to` from its front. Returns the number of bytes, which is less than the size of `to`
  /// only at the end of the stream. Throws DataError, with only the problem as text, if the bytes
  /// cannot be read.
  virtual std::size_t read(std::span<std::byte> to) = 0;
  /// Skips `count` bytes, or fewer at the end of the stream; returns how many. Throws as read()
  /// does.
  virtual std::uint64_t skip(std::uint64_t count) = 0;
  /// The number of bytes read or skipped so far.
  virtual std::uint64_t position() const noexcept = 0;
};

/// A stream over bytes in memory, which must outlive it.
class MemoryStream final : public ByteStream {
 public:
  explicit MemoryStream(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t read(std::span<std::byte> to) override {
    const std::size_t count = std::min(to.size(), bytes_.size() - position_);
    if (count > 0) std::memcpy(to.data(), bytes_.data() + position_, count);
    position_ += count;
    return count;
  }
  std::uint64_t skip(std::uint64_t count) override {
    count = std::min<std::uint64_t>(count, bytes_.size() - position_);
    position_ += count;
    return count;
  }
  std::uint64_t position() const noexcept override { return position_; }

 private:
  const std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace penstock::datasets
