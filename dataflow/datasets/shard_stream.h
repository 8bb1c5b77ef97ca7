// SPDX-License-Identifier: Apache-2.0
// Reads a shard from its beginning to its end, and decompresses it on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "dataflow/datasets/byte_stream.h"
#include "dataflow/entry.h"

namespace penstock::datasets {

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
