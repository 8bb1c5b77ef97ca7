// SPDX-License-Identifier: Apache-2.0
// Streams of bytes that can be read or skipped: parsers of archives use them for files in memory
// and for files that are decompressed while they are read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "dataflow/entry.h"

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
  std::uint64_t position() const noexcept { return position_; }

 protected:
  std::uint64_t position_ = 0;
};

/// A stream over bytes in memory, which must outlive it.
class MemoryStream final : public ByteStream {
 public:
  explicit MemoryStream(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t read(std::span<std::byte> to) override {
    const std::size_t count = std::min<std::size_t>(to.size(), bytes_.size() - position_);
    if (count > 0) std::memcpy(to.data(), bytes_.data() + position_, count);
    position_ += count;
    return count;
  }
  std::uint64_t skip(std::uint64_t count) override {
    count = std::min<std::uint64_t>(count, bytes_.size() - position_);
    position_ += count;
    return count;
  }

 private:
  const std::span<const std::byte> bytes_;
};

class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Fills part of `to`, which is not empty, from its front. Returns the number of bytes; 0 only at
  /// the end. Throws DataError, with only the problem as text, for damaged or truncated data.
  virtual std::size_t produce(std::span<std::byte> to) = 0;
};

struct DecompressorEntry {
  std::string_view name{}, summary{};
  /// Reads from `compressed`, which must outlive it.
  std::unique_ptr<Decompressor> (*make)(ByteStream& compressed) = nullptr;
};

/// Every decompressor of this program. The build generates the table from the component lists.
const Table<DecompressorEntry>& decompressor_table();

/// The decompressor for a file that begins with `front` ("gzip", "zlib", "zstd"); empty if it is
/// none of these. Sixteen bytes are enough.
std::string_view compression_by_magic(std::span<const std::byte> front) noexcept;

/// Streams throw this after a stop request. It is not an error.
struct StreamStopped {};

/// `decompressor` is a name of the table, or empty. Throws ConfigError if the file is not readable,
/// Unavailable if this program lacks the decompressor. The stream throws StreamStopped.
std::unique_ptr<ByteStream> open_shard_stream(const std::string& path,
                                              std::string_view decompressor, std::stop_token stop);

}  // namespace penstock::datasets
