// SPDX-License-Identifier: Apache-2.0
// Writes MosaicML Streaming's MDS shards and their index.json.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

using Json = nlohmann::json;  // sorted keys, as MDS writes them

class MdsWriter final : public ShardedWriter {
 public:
  using ShardedWriter::ShardedWriter;

 private:
  std::string shard_name(std::uint64_t number) const override {
    return fmt::format("shard.{:05}.mds", number);
  }
  void write(ShardFile& shard, std::uint64_t, std::span<const std::byte> image,
             std::int32_t label) override {
    if (samples_.empty()) samples_.push_back(0);
    const auto size = static_cast<std::uint32_t>(image.size());
    const std::int64_t wide = label;
    add(std::as_bytes(std::span(&size, 1)));
    add(image);
    add(std::as_bytes(std::span(&wide, 1)));
    if (data_.size() > std::numeric_limits<std::uint32_t>::max() / 2) {
      throw ConfigError(
          "'{}' would have more than 2 GiB, and MDS counts bytes in 32 bits; expected smaller "
          "shards; pass a greater --shards",
          shard.path());
    }
    samples_.push_back(static_cast<std::uint32_t>(data_.size()));
  }
  void add(std::span<const std::byte> bytes) {
    data_.insert(data_.end(), bytes.begin(), bytes.end());
  }

  void end_shard(ShardFile& shard) override {
    const Json columns{{"column_encodings", {"jpeg", "int"}},
                       {"column_names", {"image", "label"}},
                       {"column_sizes", {nullptr, 8}},
                       {"compression", nullptr},
                       {"format", "mds"},
                       {"hashes", Json::array()},
                       {"size_limit", nullptr},
                       {"version", 2}};
    const std::string text = columns.dump();
    const std::size_t begin = sizeof(std::uint32_t) * (1 + samples_.size()) + text.size();
    shard.append_number(static_cast<std::uint32_t>(samples_.size() - 1));
    for (const std::uint32_t offset : samples_) {
      shard.append_number(static_cast<std::uint32_t>(begin + offset));
    }
    shard.append(text);
    shard.append(data_);
    Json described = columns;
    described["raw_data"] = {{"basename", shard_name(described_.size())},
                             {"bytes", shard.size()},
                             {"hashes", Json::object()}};
    described["samples"] = samples_.size() - 1;
    described["zip_data"] = nullptr;
    described_.push_back(std::move(described));
    samples_.clear();
    data_.clear();
  }
  void end() override {
    ShardFile index(plan_.directory + "/index.json");
    index.append(Json{{"shards", described_}, {"version", 2}}.dump());
    index.close();
  }

  std::vector<std::uint32_t> samples_;  // begins of samples in data_, and its end
  std::vector<std::byte> data_;         // of this shard
  Json described_ = Json::array();
};

}  // namespace

extern constinit const DatasetWriterEntry mds_dataset_writer{
    .name = "mds",
    .summary = "MosaicML Streaming shards with index.json",
    .make = make_writer<MdsWriter>,
};

}  // namespace penstock::datasets
