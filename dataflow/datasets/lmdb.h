// SPDX-License-Identifier: Apache-2.0
// Reads the entries of an LMDB file without the library, which is unsafe for damaged files, and the
// images in them. This code needs no lock, no map size and no copy. It supports data version 1
// (LMDB 0.9), little-endian, 64 bits; the unnamed database, with one value for each key.
//
//   two meta pages -> the younger one's root -> branch pages -> leaf pages -> values, or a run of
//   overflow pages for one that is too large for a leaf
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace penstock::datasets {

struct LmdbEntry {
  std::span<const std::byte> key, value;
};

/// Calls `found` for each entry in the order of the keys until it returns false, and `damaged` with
/// the offset of each page or entry that cannot be read. Spans are views of `file`. Throws
/// DataError if the file is not an LMDB file, or uses unsupported features.
void read_lmdb(std::span<const std::byte> file, const std::function<bool(const LmdbEntry&)>& found,
               const std::function<void(std::uint64_t)>& damaged);

/// Caffe's Datum, a protocol buffer of one image and its label:
///   channels = 1, height = 2, width = 3 (int32), data = 4 (bytes), label = 5 (int32),
///   float_data = 6 (repeated float), encoded = 7 (bool)
struct Datum {
  std::int32_t channels = 0, height = 0, width = 0;
  std::span<const std::byte> data;  ///< an encoded image, or pixels of [channels,height,width]
  std::int32_t label = 0;           ///< 0 if missing, as in any protocol buffer
  bool encoded = false;
  bool has_floats = false;  ///< the pixels are in float_data
};

/// `data` is a view of `message`. Throws DataError if `message` is not a Datum.
Datum parse_datum(std::span<const std::byte> message);

}  // namespace penstock::datasets
