// SPDX-License-Identifier: Apache-2.0
// A data format in one file, with its reader and its writer. A file holds records: the length of a
// JPEG file, its label, and the JPEG file.
//   penstock_custom dataset convert --data-dir data/train --to records --out example-records
//   penstock_custom run --fake-location queue:source=records --data-dir example-records
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_list.h"

namespace penstock {
namespace {

struct RecordHeader {
  std::uint32_t bytes = 0;
  std::int32_t label = -1;
};

class Records final : public datasets::RecordFormat {
 public:
  void index(const datasets::MappedFile& shard, const datasets::AddRecord& add) const override {
    std::span<const std::byte> rest = shard.bytes();
    while (!rest.empty()) {
      const auto at = static_cast<std::uint64_t>(rest.data() - shard.bytes().data());
      RecordHeader header;
      if (rest.size() >= sizeof header) std::memcpy(&header, rest.data(), sizeof header);
      if (rest.size() < sizeof header || rest.size() - sizeof header < header.bytes) {
        // Adds one damaged record for the part that was cut off.
        constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
        add({at, static_cast<std::uint32_t>(std::min(rest.size(), kMost))});
        return;
      }
      add({at + sizeof header, header.bytes, header.label});
      rest = rest.subspan(sizeof header + header.bytes);
    }
  }
  // `sample.lent` already is the JPEG file.
  void open(Sample& sample) const override {
    if (sample.label < 0) datasets::refuse_record(sample, "the record is cut, or has no label");
  }
};

class RecordsWriter final : public datasets::ShardedWriter {
 public:
  using datasets::ShardedWriter::ShardedWriter;

 private:
  std::string shard_name(std::uint64_t number) const override {
    return fmt::format("train-{:06}.records", number);
  }
  void write(datasets::ShardFile& shard, std::uint64_t, std::span<const std::byte> image,
             std::int32_t label) override {
    shard.append_number(RecordHeader{static_cast<std::uint32_t>(image.size()), label});
    shard.append(image);
  }
};

bool is_records(std::string_view name) { return name.ends_with(".records"); }

}  // namespace

extern constinit const SourceEntry records_source{
    .name = "records",
    .summary = "files of JPEG files, each behind its length and its label",
    .make = [](const DataPlan& plan, const Options&) -> std::unique_ptr<Source> {
      return datasets::make_record_source(
          plan, datasets::list_shards(plan, is_records, "records", "train-000000.records"),
          std::make_unique<Records>());
    },
    .detects = is_records,
};

extern constinit const datasets::DatasetWriterEntry records_dataset_writer{
    .name = "records",
    .summary = "files of JPEG files, each behind its length and its label",
    .make = datasets::make_writer<RecordsWriter>,
};

}  // namespace penstock
