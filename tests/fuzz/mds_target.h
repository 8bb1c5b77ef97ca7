// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of an index.json and of a shard.
// Throws std::logic_error where an answer contradicts itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/packed/mds.h"

namespace penstock {

/// How many samples there should be in shards with images; -1: it is no index.
inline std::int64_t try_mds_index(std::span<const std::byte> file) {
  try {
    std::uint64_t samples = 0;
    for (const MdsShard& shard :
         parse_mds_index({reinterpret_cast<const char*>(file.data()), file.size()})) {
      const MdsColumns columns = choose_mds_columns(shard, "", "");
      if (columns.image >= shard.columns.size() || columns.label >= shard.columns.size() ||
          columns.image == columns.label || shard.file.empty() || shard.file.front() == '/') {
        throw std::logic_error("a shard that cannot be");
      }
      samples += shard.samples;
    }
    return static_cast<std::int64_t>(samples);
  } catch (const DataError&) {
    return -1;
  }
}

/// Of a shard whose columns the first byte chooses: how many images there are; -1: it is none.
inline std::int64_t try_mds_shard(std::span<const std::byte> input) {
  static const std::vector<MdsColumn> kColumns[] = {
      {{"image", "jpeg"}, {"label", "int", 8}},
      {{"a", "bytes"}, {"b", "uint8", 1}, {"c", "str"}, {"d", "float32", 4}},
      {{"i", "uint64", 8}, {"x", "jpeg:90"}, {"y", "str_int"}},
      {{"x", "jpeg"}, {"y", "int16", 2}, {"z", "uint32", 4}},
  };
  if (input.empty()) return -1;
  MdsShard shard;
  shard.columns = kColumns[std::to_integer<std::size_t>(input[0]) % std::size(kColumns)];
  const std::span<const std::byte> file = input.subspan(1);
  shard.bytes = file.size();
  shard.samples = 3;
  try {
    check_mds_shard(file, shard);
    const MdsColumns columns =
        choose_mds_columns(shard, "", shard.columns.size() == 3 ? shard.columns[2].name : "");
    std::int64_t images = 0;
    for (std::uint64_t i = 0; i < shard.samples; ++i) {
      try {
        const std::span<const std::byte> found = mds_sample(file, shard, i);
        if (found.data() < file.data() || found.data() + found.size() > file.data() + file.size()) {
          throw std::logic_error("a sample outside the file");
        }
        // A block of exactly this size, so that a sanitizer sees one byte too many.
        const std::vector<std::byte> sample(found.begin(), found.end());
        const MdsImage image = parse_mds_sample(sample, shard, columns);
        if (image.label < 0 || image.image.empty() || image.image.size() > sample.size()) {
          throw std::logic_error("an image that is none");
        }
        ++images;
      } catch (const DataError&) {
      }
    }
    return images;
  } catch (const DataError&) {
    return -1;
  }
}

/// Three samples of an image of seven bytes and a label of eight.
inline std::vector<std::byte> good_mds_shard() {
  std::string file(1, '\0');
  const auto append = [&](const auto& value) {
    file.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(std::uint32_t{3});
  constexpr std::uint32_t kAt = 4 * 5 + 2, kSample = 4 + 7 + 8;
  for (std::uint32_t i = 0; i <= 3; ++i) append(kAt + i * kSample);
  file += "{}";
  for (std::int64_t i = 0; i < 3; ++i) {
    append(std::uint32_t{7});
    file += "7 bytes";
    append(i);
  }
  const auto bytes = std::as_bytes(std::span(file));
  return {bytes.begin(), bytes.end()};
}

inline std::vector<std::byte> good_mds_index() {
  constexpr std::string_view kText =
      R"({"version":2,"shards":[{"version":2,"format":"mds","samples":3,"compression":"zstd:3",)"
      R"("column_names":["i","x","y"],"column_encodings":["float32","jpeg:75","uint16"],)"
      R"("column_sizes":[4,null,2],"hashes":[],"size_limit":null,)"
      R"("raw_data":{"basename":"a/b.mds","bytes":80,"hashes":{}},)"
      R"("zip_data":{"basename":"a/b.mds.zstd","bytes":30,"hashes":{}}}]})";
  const auto bytes = std::as_bytes(std::span(kText));
  return {bytes.begin(), bytes.end()};
}

}  // namespace penstock
