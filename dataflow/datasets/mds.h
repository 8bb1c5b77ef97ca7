// SPDX-License-Identifier: Apache-2.0
// MosaicML Streaming's MDS, version 2: shards, and an index.json that describes them. Layout:
// streaming's base/format/mds/writer.py and encodings.py.
//
//   shard     u32 samples | u32 offset of each, and of the end | JSON, as in index.json | samples
//   sample    u32 bytes of each column whose size varies | the columns
//
// Functions throw DataError, with the problem alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct MdsColumn {
  std::string name, encoding;
  std::uint32_t bytes = 0;  ///< 0: each sample has its own size
};

struct MdsShard {
  std::string file;         ///< relative to the folder of index.json, and within it
  std::uint64_t bytes = 0;  ///< of the file
  std::uint64_t samples = 0;
  std::vector<MdsColumn> columns;    ///< as they lie in a sample
  std::string compressed_file = {};  ///< what may be there instead; empty: nothing
  std::string compression = {};

  /// Before it there are no samples, and the end of the shard's own table of offsets.
  std::uint64_t samples_at() const noexcept { return 4 * (samples + 2); }
};

/// The shards of an index.json, none of them twice.
std::vector<MdsShard> parse_mds_index(std::string_view json);

/// Places in MdsShard::columns.
struct MdsColumns {
  std::size_t image = 0, label = 0;
};

/// As choose_column() finds them by what was typed. Images are columns of encoding jpeg, or, where
/// none is or one was typed, of encoding bytes; labels are those of whole numbers.
MdsColumns choose_mds_columns(const MdsShard& shard, std::string_view image,
                              std::string_view label);

/// That a file is what the index says: its size, its number of samples.
void check_mds_shard(std::span<const std::byte> file, const MdsShard& shard);

/// A sample of a file that check_mds_shard() found right: all bytes of it.
std::span<const std::byte> mds_sample(std::span<const std::byte> file, const MdsShard& shard,
                                      std::uint64_t index);

struct MdsImage {
  std::int32_t label = 0;
  std::span<const std::byte> image;  ///< not empty
};

MdsImage parse_mds_sample(std::span<const std::byte> sample, const MdsShard& shard,
                          const MdsColumns& columns);

}  // namespace penstock
