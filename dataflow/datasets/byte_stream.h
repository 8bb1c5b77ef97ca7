// SPDX-License-Identifier: Apache-2.0
// Bytes that come one after the other, of which some are passed over: what parsers of archives
// read, whether a file lies in memory or is decompressed as it is read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace penstock {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills `to` from its front; returns how much of it, all but at the end of the bytes. Throws
  /// DataError, with the problem alone, where they cannot be had.
  virtual std::size_t read(std::span<std::byte> to) = 0;
  /// Passes over `count` bytes, or over those that are left; returns how many. Throws as read()
  /// does.
  virtual std::uint64_t skip(std::uint64_t count) = 0;
  /// How many bytes were read or passed over.
  virtual std::uint64_t position() const noexcept = 0;
};

/// Bytes that lie in memory, and live longer than this.
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

}  // namespace penstock
