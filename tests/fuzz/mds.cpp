// SPDX-License-Identifier: Apache-2.0
// MDS: an index.json, and a shard whose columns the first byte chooses.
#include "dataflow/datasets/mds.h"

#include <cstdint>
#include <iterator>

#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

std::size_t read_index(std::span<const std::byte> file) {
  std::size_t shards = 0;
  for (const datasets::MdsShard& shard : datasets::parse_mds_index(as_text(file))) {
    const datasets::MdsColumns columns = datasets::choose_mds_columns(shard, "", "");
    ensure(columns.image < shard.columns.size() && columns.label < shard.columns.size() &&
               columns.image != columns.label && !shard.file.empty() && shard.file.front() != '/',
           "a shard that cannot be");
    ++shards;
  }
  return shards;
}

std::size_t read_shard(std::span<const std::byte> input) {
  static const std::vector<datasets::MdsColumn> kColumns[] = {
      {{"image", "jpeg"}, {"label", "int", 8}},
      {{"a", "bytes"}, {"b", "uint8", 1}, {"c", "str"}, {"d", "float32", 4}},
      {{"i", "uint64", 8}, {"x", "jpeg:90"}, {"y", "str_int"}},
      {{"x", "jpeg"}, {"y", "int16", 2}, {"z", "uint32", 4}},
  };
  if (input.empty()) return 0;
  datasets::MdsShard shard;
  shard.columns = kColumns[std::to_integer<std::size_t>(input[0]) % std::size(kColumns)];
  const std::span<const std::byte> file = input.subspan(1);
  shard.bytes = file.size();
  shard.samples = 3;
  datasets::check_mds_shard(file, shard);
  const datasets::MdsColumns columns = datasets::choose_mds_columns(
      shard, "", shard.columns.size() == 3 ? shard.columns[2].name : "");
  std::size_t images = 0;
  for (std::uint64_t i = 0; i < shard.samples; ++i) {
    images += use_input(
        [&](std::span<const std::byte> whole) -> std::size_t {
          const std::span<const std::byte> found = datasets::mds_sample(whole, shard, i);
          ensure(is_inside(found, whole), "a sample outside the file");
          const Bytes sample(found.begin(), found.end());  // a block of exactly this size
          const datasets::MdsImage image = datasets::parse_mds_sample(sample, shard, columns);
          ensure(image.label >= 0 && is_inside(image.image, sample) && !image.image.empty(),
                 "an image that is none");
          return 1;
        },
        file);
  }
  return images;
}

}  // namespace

std::size_t mds(std::span<const std::byte> input) {
  return use_input(read_index, input) + use_input(read_shard, input);
}

}  // namespace penstock::fuzz
