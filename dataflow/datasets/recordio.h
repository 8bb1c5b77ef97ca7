// SPDX-License-Identifier: Apache-2.0
// Parses dmlc's RecordIO, with the images that MXNet packs into it. Sources of the layouts:
// dmlc-core's src/recordio.cc, MXNet's python/mxnet/recordio.py.
//
//   part     u32 magic | u32 flag << 29 + length | length bytes | zeros up to a multiple of 4
//   record   one part of flag 0; or, if the data have the magic number at a multiple of 4,
//            parts of flags 1, 2, ..., 2, 3, with one magic number left out between any two
//   data     u32 labels | f32 label | u64 id | u64 id | f32 x labels | image
//
// Data never contain the magic number at a position where a part could begin. So a search for it
// finds the next record after damage. Functions throw DataError with only the problem as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace penstock::datasets {

/// The end, after its padding, of the record that begins at `offset`, a multiple of 4.
std::uint64_t recordio_end(std::span<const std::byte> file, std::uint64_t offset);

/// True if a part that can begin a record is at `offset`, a multiple of 4.
bool recordio_begins(std::span<const std::byte> file, std::uint64_t offset) noexcept;

/// The first position from `offset`, a multiple of 4, for which recordio_begins() is true; the end
/// of the file if there is none.
std::uint64_t find_recordio(std::span<const std::byte> file, std::uint64_t offset) noexcept;

/// The data of a whole record. If it has several parts, they are joined in `joined`; otherwise the
/// data are a view of `record`.
std::span<const std::byte> recordio_data(std::span<const std::byte> record,
                                         std::vector<std::byte>& joined);

struct PackedImage {
  std::int32_t label = -1;   ///< the first one if there are several
  std::uint32_t labels = 1;  ///< at least 1
  std::span<const std::byte> image;
};

PackedImage parse_packed_image(std::span<const std::byte> data);

/// The sorted offsets of an .idx file, which has a line "key<tab>offset" for each record. They are
/// multiples of 4, and none appears twice.
std::vector<std::uint64_t> parse_recordio_index(std::string_view text);

}  // namespace penstock::datasets
