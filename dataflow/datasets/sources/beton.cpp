// SPDX-License-Identifier: Apache-2.0
// The source for FFCV's .beton files. A record is the image's bytes. For a damaged sample it is the
// row, from which open() finds the problem.
#include "dataflow/datasets/beton.h"

#include <map>
#include <string>

#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

constexpr OptionSpec kOptions[] = {
    {"image", "",
     "field of the RGB images; default: the only one, or one named image, img, jpg, jpeg or x"},
    {"label", "",
     "field of the labels; default: the only one of integers, or one named label, labels, class, "
     "cls, target or y"},
};

/// What is known of a file before its rows are read.
struct BetonFile {
  BetonLayout layout;
  BetonField image, label;
};

[[noreturn]] void refuse_file(const std::string& path, const std::string& problem) {
  throw ConfigError("the .beton file '" + path + "' " + problem +
                    "; expected a file that ffcv's DatasetWriter finished; check --data-dir");
}

class Beton final : public RecordFormat {
 public:
  Beton(const FileList& shards, const Options& options) {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const MappedFile shard(shards.path(i));
      try {
        files_.emplace(shard.path(), read_layout(shard.bytes(), options));
      } catch (const DataError& error) {
        refuse_file(shard.path(), error.what());
      }
    }
  }

  void index(const MappedFile& shard,
             const std::function<void(const Record&)>& add) const override {
    const auto& [layout, image, label] = files_.at(shard.path());
    const std::span<const std::byte> file = shard.bytes();
    const BetonAllocations allocations(file, layout);
    std::uint64_t raw = 0;
    for (std::uint64_t i = 0; i < layout.samples; ++i) {
      const std::uint64_t at = layout.rows_at + i * layout.row_bytes;
      const std::span<const std::byte> row = file.subspan(at, layout.row_bytes);
      Record record{at, static_cast<std::uint32_t>(layout.row_bytes), -1};
      if (is_raw_in_beton(row, image)) {
        ++raw;
      } else {
        try {
          const BetonSample sample = parse_beton_row(row, image, label);
          const std::uint32_t bytes = allocations.bytes_at(sample.image_at);
          if (bytes > 0) record = {sample.image_at, bytes, sample.label};
        } catch (const DataError&) {
          record.label = -1;  // open() says why
        }
      }
      add(record);
    }
    if (raw == 0 || raw < layout.samples) return;
    refuse_file(shard.path(),
                "has uncompressed images only (mode raw), and the decoder reads JPEG; pack it with "
                "RGBImageField(write_mode='jpg')");
  }

  void open(Sample& sample) const override {
    if (sample.label >= 0) return;  // the record is the image
    const auto& [layout, image, label] = files_.find(sample.file)->second;
    try {
      const BetonSample row = parse_beton_row(sample.lent, image, label);
      throw DataError("its row places the image at byte " + std::to_string(row.image_at) +
                      ", where the file has no data");
    } catch (const DataError& error) {
      refuse_record(sample, error.what());
    }
  }

 private:
  static BetonFile read_layout(std::span<const std::byte> file, const Options& options) {
    BetonFile found{parse_beton_layout(file), {}, {}};
    found.image = found.layout.fields[choose_beton_field(
        found.layout, BetonType::image,
        {options.text("image"), "RGB images", "beton:image", kUsualImages})];
    found.label = found.layout.fields[choose_beton_field(
        found.layout, BetonType::integer,
        {options.text("label"), "whole numbers", "beton:label", kUsualLabels})];
    return found;
  }

  std::map<std::string, BetonFile, std::less<>> files_;  // by path
};

bool is_beton(std::string_view name) { return name.ends_with(".beton") || name.ends_with(".ffcv"); }

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  FileList shards = list_shards(plan, is_beton, "FFCV", "train.beton");
  auto format = std::make_unique<Beton>(shards, options);
  return make_record_source(plan, std::move(shards), std::move(format));
}

}  // namespace

extern constinit const SourceEntry beton_source{
    .name = "beton",
    .summary = "FFCV .beton files, version 2, with JPEG images",
    .options = kOptions,
    .make = make,
};

}  // namespace penstock::datasets
