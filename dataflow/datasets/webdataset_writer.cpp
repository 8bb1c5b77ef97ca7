// SPDX-License-Identifier: Apache-2.0
// Writes WebDataset shards: tar files of KEY.jpg and KEY.cls.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/datasets/dataset_writer.h"

namespace penstock::datasets {
namespace {

constexpr std::size_t kBlock = 512;

void append_file(ShardFile& shard, const std::string& name, std::span<const std::byte> content) {
  std::array<char, kBlock> header{};
  const auto put = [&](std::size_t offset, std::string_view text) {
    std::memcpy(header.data() + offset, text.data(), text.size());
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", content.size()));
  put(136, "00000000000");
  put(148, "        ");  // the checksum counts itself as blanks
  put(156, "0");
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  shard.append(std::as_bytes(std::span(header)));
  shard.append(content);
  shard.append_zeros((kBlock - content.size() % kBlock) % kBlock);
}

class WebDatasetWriter final : public ShardedWriter {
 public:
  using ShardedWriter::ShardedWriter;

 private:
  std::string shard_name(std::uint64_t number) const override {
    return fmt::format("train-{:06}.tar", number);
  }
  void write(ShardFile& shard, std::uint64_t sample, std::span<const std::byte> image,
             std::int32_t label) override {
    const std::string key = fmt::format("{:09}", sample), text = std::to_string(label);
    append_file(shard, key + ".jpg", image);
    append_file(shard, key + ".cls", std::as_bytes(std::span(text)));
  }
  void end_shard(ShardFile& shard) override { shard.append_zeros(2 * kBlock); }
};

}  // namespace

extern constinit const DatasetWriterEntry webdataset_dataset_writer{
    .name = "webdataset",
    .summary = "tar files of KEY.jpg and KEY.cls",
    .make = make_writer<WebDatasetWriter>,
};

}  // namespace penstock::datasets
