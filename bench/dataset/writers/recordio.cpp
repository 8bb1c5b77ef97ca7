// SPDX-License-Identifier: Apache-2.0
// MXNet's RecordIO with IRHeader, and the text index beside each file.
//
//   part   := u32 magic, u32 kind << 29 | length, data, zeros up to a multiple of four
//   record := one part of kind 0, or parts of kind 1, 2, ..., 2, 3: data are split at every magic
//             at a multiple of four bytes, and the magic is omitted
//   data   := u32 flag (0), f32 label, u64 id, u64 id2 (0), image
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <vector>

#include "bench/dataset/shard_file.h"
#include "dataflow/error.h"

namespace penstock::dataset {
namespace {

constexpr std::uint32_t kMagic = 0xced7230a;
constexpr std::size_t kMostBytes = (std::size_t{1} << 29) - 1;

void append_part(ShardFile& shard, unsigned kind, std::span<const std::byte> data) {
  shard.append_number(kMagic);
  shard.append_number(static_cast<std::uint32_t>(kind << 29 | data.size()));
  shard.append(data);
  shard.append_zeros((4 - data.size() % 4) % 4);
}

/// Places of the magic at multiples of four.
std::vector<std::size_t> find_magic(std::span<const std::byte> data) {
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at + sizeof(kMagic) <= data.size(); at += sizeof(kMagic)) {
    if (std::memcmp(data.data() + at, &kMagic, sizeof(kMagic)) == 0) places.push_back(at);
  }
  return places;
}

class RecordIoWriter final : public ShardedWriter {
 public:
  using ShardedWriter::ShardedWriter;

 private:
  std::string stem(std::uint64_t number) const {
    return plan_.shards == 1 ? "train" : fmt::format("train-{:05}", number);
  }
  std::string shard_name(std::uint64_t number) const override { return stem(number) + ".rec"; }

  void write(ShardFile& shard, std::uint64_t sample, std::span<const std::byte> image,
             std::int32_t label) override {
    index_ += fmt::format("{}\t{}\n", sample, shard.size());
    const std::uint64_t ids[] = {sample, 0};
    const std::uint32_t head[] = {0, std::bit_cast<std::uint32_t>(static_cast<float>(label))};
    data_.resize(sizeof(head) + sizeof(ids) + image.size());
    std::memcpy(data_.data(), head, sizeof(head));
    std::memcpy(data_.data() + sizeof(head), ids, sizeof(ids));
    std::memcpy(data_.data() + sizeof(head) + sizeof(ids), image.data(), image.size());
    if (data_.size() > kMostBytes) {
      throw ConfigError(
          fmt::format("sample {} has {} bytes, and RecordIO holds at most {}; choose "
                      "another format",
                      sample, data_.size(), kMostBytes));
    }
    append_record(shard);
  }
  void append_record(ShardFile& shard) {
    const std::span<const std::byte> data(data_);
    std::size_t begin = 0;
    unsigned kind = 0;
    for (const std::size_t place : find_magic(data)) {
      append_part(shard, kind == 0 ? 1 : 2, data.subspan(begin, place - begin));
      begin = place + sizeof(kMagic);
      kind = 3;
    }
    append_part(shard, kind, data.subspan(begin));
  }
  void end_shard(ShardFile&) override {
    ShardFile index(plan_.directory + "/" + stem(shards_++) + ".idx");
    index.append(index_);
    index.close();
    index_.clear();
  }

  std::vector<std::byte> data_;
  std::string index_;
  std::uint64_t shards_ = 0;
};

}  // namespace

extern constinit const DatasetWriterEntry recordio_dataset_writer{
    .name = "recordio",
    .summary = "MXNet RecordIO with an index file",
    .make = make_writer<RecordIoWriter>,
};

}  // namespace penstock::dataset
