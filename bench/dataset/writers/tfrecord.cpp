// SPDX-License-Identifier: Apache-2.0
// TFRecord files of tf.train.Example, with ImageNet's keys; labels start at 1.
//
//   record  := u64 length, u32 masked CRC32C of it, data, u32 masked CRC32C of the data
//   Example := features (1) { feature (1) { key (1), value (2) { bytes (1) | int64 (3) { value (1)
//   } } } }
#include <fmt/format.h>

#include "bench/dataset/protobuf_text.h"
#include "bench/dataset/shard_file.h"
#include "dataflow/values/crc32c.h"

namespace penstock::dataset {
namespace {

constexpr std::string_view kTrainName = "train";

/// An entry of the map of features; `kind` is 1 for bytes, 3 for whole numbers.
void add_feature(std::string& to, std::string_view key, unsigned kind, std::string_view value) {
  std::string list, feature, entry;
  append_field(list, 1, value);
  append_field(feature, kind, list);
  append_field(entry, 1, key);
  append_field(entry, 2, feature);
  append_field(to, 1, entry);
}

std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8U; }

class TfRecordWriter final : public ShardedWriter {
 public:
  using ShardedWriter::ShardedWriter;

 private:
  std::string shard_name(std::uint64_t number) const override {
    return fmt::format("{}-{:05}-of-{:05}", kTrainName, number, plan_.shards);
  }
  void write(ShardFile& shard, std::uint64_t, std::span<const std::byte> image,
             std::int32_t label) override {
    std::string number, features, example;
    append_varint(number, static_cast<std::uint64_t>(label) + 1);
    add_feature(features, "image/class/label", 3, number);
    add_feature(features, "image/encoded", 1,
                {reinterpret_cast<const char*>(image.data()), image.size()});
    add_feature(features, "image/format", 1, "JPEG");
    append_field(example, 1, features);
    const std::uint64_t length = example.size();
    shard.append_number(length);
    shard.append_number(masked(values::crc32c(std::as_bytes(std::span(&length, 1)))));
    shard.append(example);
    shard.append_number(masked(values::crc32c(std::as_bytes(std::span(example)))));
  }
};

}  // namespace

extern constinit const DatasetWriterEntry tfrecord_dataset_writer{
    .name = "tfrecord",
    .summary = "TFRecord files of tf.train.Example, as for ImageNet",
    .make = make_writer<TfRecordWriter>,
};

}  // namespace penstock::dataset
