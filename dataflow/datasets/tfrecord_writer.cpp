// SPDX-License-Identifier: Apache-2.0
// Writes TFRecord files of tf.train.Example messages, or of tensorpack's datapoints.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/datasets/datapoint.h"
#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/values/crc32c.h"

namespace penstock::datasets {
namespace {

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

std::string example_of(std::span<const std::byte> image, std::int32_t label) {
  const std::int64_t number = std::int64_t{label} + 1;
  std::string numbers, features, example;
  protozero::pbf_writer(numbers).add_packed_int64(1, &number, &number + 1);
  protozero::pbf_writer map(features);
  add_feature(map, "image/class/label", 3, numbers);
  add_feature(map, "image/encoded", 1,
              list_of(reinterpret_cast<const char*>(image.data()), image.size()));
  add_feature(map, "image/format", 1, list_of("JPEG", 4));
  protozero::pbf_writer(example).add_message(1, features);
  return example;
}

constexpr OptionSpec kWriterOptions[] = {
    {"record", "example",
     "format of records: example (tf.train.Example) or datapoint (tensorpack's "
     "TFRecordSerializer)"},
    kDumpsOption,
};

class TfRecordWriter final : public ShardedWriter {
 public:
  TfRecordWriter(const WriterPlan& plan, const Options& options)
      : ShardedWriter(plan), dumps_(dumps_of(options, "record", "example")) {}

 private:
  std::string shard_name(std::uint64_t number) const override {
    return fmt::format("train-{:05}-of-{:05}", number, plan_.shards);
  }
  void write(ShardFile& shard, std::uint64_t, std::span<const std::byte> image,
             std::int32_t label) override {
    const std::string data =
        dumps_ ? values::dump_datapoint(*dumps_, image, label) : example_of(image, label);
    const std::uint64_t length = data.size();
    shard.append_number(length);
    shard.append_number(
        values::masked_crc32c(values::crc32c(std::as_bytes(std::span(&length, 1)))));
    shard.append(data);
    shard.append_number(values::masked_crc32c(values::crc32c(std::as_bytes(std::span(data)))));
  }

  const std::optional<values::Dumps> dumps_;  // none: Examples
};

}  // namespace

extern constinit const DatasetWriterEntry tfrecord_dataset_writer{
    .name = "tfrecord",
    .summary = "TFRecord files of tf.train.Example, as for ImageNet, or of tensorpack's datapoints",
    .options = kWriterOptions,
    .make = make_writer<TfRecordWriter>,
};

}  // namespace penstock::datasets
