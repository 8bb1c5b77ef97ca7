// SPDX-License-Identifier: Apache-2.0
// Parses MosaicML Streaming's MDS, version 2: shards, and an index.json that describes them. Source
// of the layout: streaming's base/format/mds/writer.py and encodings.py.
//
//   shard     u32 samples | u32 offset of each, and of the end | JSON, as in index.json | samples
//   sample    u32 bytes of each column whose size varies | the columns
//
// Functions throw DataError with only the problem as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::datasets {

struct MdsColumn {
  std::string name, encoding;
  std::uint32_t bytes = 0;  ///< 0: the size varies from sample to sample
};

struct MdsShard {
  std::string file;         ///< relative to the folder of index.json, and within it
  std::uint64_t bytes = 0;  ///< size of the file
  std::uint64_t samples = 0;
  std::vector<MdsColumn> columns;    ///< in the order in which a sample stores them
  std::string compressed_file = {};  ///< the file that may be there instead; may be empty
  std::string compression = {};

  /// Offset after the shard's own table of offsets; no sample begins before it.
  std::uint64_t samples_at() const noexcept { return 4 * (samples + 2); }
};

/// The shards of an index.json. No shard appears twice.
std::vector<MdsShard> parse_mds_index(std::string_view json);

/// Indices in MdsShard::columns.
struct MdsColumns {
  std::size_t image = 0, label = 0;
};

/// Chooses columns as choose_column() does, from the typed names. Images are columns of encoding
/// jpeg, or of encoding bytes if there is no jpeg column or a name was typed. Labels are columns of
/// whole numbers.
MdsColumns choose_mds_columns(const MdsShard& shard, std::string_view image,
                              std::string_view label);

/// Checks that a file agrees with the index: its size and its number of samples.
void check_mds_shard(std::span<const std::byte> file, const MdsShard& shard);

/// All bytes of one sample. check_mds_shard() must have accepted the file.
std::span<const std::byte> mds_sample(std::span<const std::byte> file, const MdsShard& shard,
                                      std::uint64_t index);

struct MdsImage {
  std::int32_t label = 0;
  std::span<const std::byte> image;  ///< not empty
};

MdsImage parse_mds_sample(std::span<const std::byte> sample, const MdsShard& shard,
                          const MdsColumns& columns);

}  // namespace penstock::datasets
