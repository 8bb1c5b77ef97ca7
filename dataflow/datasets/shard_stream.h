// SPDX-License-Identifier: Apache-2.0
// A shard that is read from its beginning to its end, and decompressed on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "dataflow/entry.h"
#include "dataflow/packed/byte_stream.h"

namespace penstock {

class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Fills some of `to`, which is not empty, from its front; returns how much, 0 only at the end.
  /// Throws DataError, with the problem alone, for data that are damaged or cut off.
  virtual std::size_t produce(std::span<std::byte> to) = 0;
};

struct DecompressorEntry {
  std::string_view name{}, summary{};
  /// Reads from `compressed`, which lives longer.
  std::unique_ptr<Decompressor> (*make)(ByteStream& compressed) = nullptr;
};

/// Every decompressor of this program; generated from the component lists.
const Table<DecompressorEntry>& decompressor_table();

/// The decompressor for a file that begins so ("gzip", "zlib", "zstd"); empty: it is none of these.
/// Sixteen bytes are enough.
std::string_view compression_by_magic(std::span<const std::byte> front) noexcept;

/// What streams throw once a stop was requested: nothing went wrong.
struct StreamStopped {};

/// `decompressor` is a name of the table, or empty. Throws ConfigError for what is no readable
/// file, Unavailable for a decompressor that this program lacks. The stream throws StreamStopped.
std::unique_ptr<ByteStream> open_shard_stream(const std::string& path,
                                              std::string_view decompressor, std::stop_token stop);

}  // namespace penstock
