// SPDX-License-Identifier: Apache-2.0
// dmlc's RecordIO, with the images that MXNet packs into it. Layouts: dmlc-core's
// src/recordio.cc, MXNet's python/mxnet/recordio.py.
//
//   part     u32 magic | u32 flag << 29 + length | length bytes | zeros up to a multiple of 4
//   record   one part of flag 0; or, where the magic number stood in the data at a multiple of 4,
//            parts of flags 1, 2, ..., 2, 3, with one magic number left out between any two
//   data     u32 labels | f32 label | u64 id | u64 id | f32 x labels | image
//
// Since data never have the magic number where a part could begin, what follows damage is found
// again by looking for it. Functions throw DataError, with the problem alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

/// Where the record ends that begins at `offset`, a multiple of 4: behind its padding.
std::uint64_t recordio_end(std::span<const std::byte> file, std::uint64_t offset);

/// Whether a part lies at `offset`, a multiple of 4, with which a record may begin.
bool recordio_begins(std::span<const std::byte> file, std::uint64_t offset) noexcept;

/// The first place at or behind `offset`, a multiple of 4, where recordio_begins(); the end of the
/// file where there is none.
std::uint64_t find_recordio(std::span<const std::byte> file, std::uint64_t offset) noexcept;

/// The data of a record, which must be whole. Of several parts they are put together in `joined`,
/// else they are a part of `record`.
std::span<const std::byte> recordio_data(std::span<const std::byte> record,
                                         std::vector<std::byte>& joined);

struct PackedImage {
  std::int32_t label = -1;   ///< the first, where there are several
  std::uint32_t labels = 1;  ///< at least 1
  std::span<const std::byte> image;
};

PackedImage parse_packed_image(std::span<const std::byte> data);

/// The offsets of an .idx file, a line "key<tab>offset" for each record, sorted. They are multiples
/// of 4, and none is there twice.
std::vector<std::uint64_t> parse_recordio_index(std::string_view text);

}  // namespace penstock
