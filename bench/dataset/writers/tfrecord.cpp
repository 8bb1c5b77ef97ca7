// SPDX-License-Identifier: Apache-2.0
// TFRecord files of tf.train.Example, with ImageNet's keys; labels start at 1.
//
//   record  := u64 length, u32 masked CRC32C of it, data, u32 masked CRC32C of the data
//   Example := features (1) { feature (1) { key (1), value (2) { bytes (1) | int64 (3) { value (1)
//   } } } }
#include <fmt/format.h>

#include <protozero/pbf_writer.hpp>

#include "bench/dataset/shard_file.h"
#include "dataflow/values/crc32c.h"

namespace penstock::dataset {
namespace {

constexpr std::string_view kTrainName = "train";

/// An entry of the map of features. `kind` is the field of the list in a Feature: 1 for bytes, 3
/// for whole numbers.
void add_feature(protozero::pbf_writer& features, std::string_view key, unsigned kind,
                 const std::string& list) {
  std::string feature, entry;
  protozero::pbf_writer(feature).add_message(kind, list);
  protozero::pbf_writer fields(entry);
  fields.add_string(1, key.data(), key.size());
  fields.add_message(2, feature);
  features.add_message(1, entry);
}

std::string list_of(const char* bytes, std::size_t size) {
  std::string list;
  protozero::pbf_writer(list).add_bytes(1, bytes, size);
  return list;
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
    const std::int64_t number = std::int64_t{label} + 1;
    std::string numbers, features, example;
    protozero::pbf_writer(numbers).add_packed_int64(1, &number, &number + 1);
    protozero::pbf_writer map(features);
    add_feature(map, "image/class/label", 3, numbers);
    add_feature(map, "image/encoded", 1,
                list_of(reinterpret_cast<const char*>(image.data()), image.size()));
    add_feature(map, "image/format", 1, list_of("JPEG", 4));
    protozero::pbf_writer(example).add_message(1, features);
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
