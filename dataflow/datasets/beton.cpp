// SPDX-License-Identifier: Apache-2.0
// FFCV's .beton files, version 2: the parser, the source and the writer. A record is the image's
// bytes. For a damaged sample it is the row, from which open() finds the problem.
#include "dataflow/datasets/beton.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

constexpr std::uint64_t kHeadBytes = 24, kNameBytes = 16, kFieldBytes = 1 + kNameBytes + 1024,
                        kAllocationBytes = 24;
constexpr std::uint8_t kJpegMode = 0, kRawMode = 1;

struct TypeRow {
  std::string_view name;
  std::uint64_t bytes, alignment;  ///< in a row
};

/// One row per BetonType, in its order.
constexpr TypeRow kTypes[] = {
    {"float", 8, 8}, {"int", 8, 8},   {"RGB image", 13, 1}, {"bytes", 16, 1},
    {"array", 8, 8}, {"JSON", 16, 1}, {"tensor", 8, 8},
};

constexpr std::uint64_t align(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

/// The text up to a zero. Control characters, which could change the terminal, become question
/// marks.
std::string name_of(std::span<const std::byte> characters) {
  std::string name;
  for (const std::byte character : characters) {
    if (character == std::byte{0}) break;
    const auto letter = static_cast<unsigned char>(character);
    name += letter < ' ' || letter == 127 ? '?' : static_cast<char>(letter);
  }
  return name;
}

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
  throw ConfigError(
      "the .beton file '{}' {}; expected a file that ffcv's DatasetWriter finished; check "
      "--data-dir",
      path, problem);
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

  void index(const MappedFile& shard, const AddRecord& add) const override {
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
      throw DataError("its row places the image at byte {}, where the file has no data",
                      row.image_at);
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

// ---- writer -----------------------------------------------------------------

/// Writes a JPEG "image" and an int "label" for each sample. No image lies in two pages.
class BetonWriter final : public DatasetWriter {
 public:
  explicit BetonWriter(const WriterPlan& plan) : file_(plan.directory + "/train.beton") {
    file_.append_number(std::uint16_t{2});  // the version
    file_.append_number(std::uint16_t{2});  // fields
    file_.append_number(kPage);
    file_.append_number(plan.samples);
    file_.append_number(std::uint64_t{0});  // until finish() knows where the allocations are
    append_field(BetonType::image, "image");
    append_field(BetonType::integer, "label");
    file_.append_zeros(plan.samples * kRowBytes);
    samples_.reserve(plan.samples * kRowBytes);
    page_end_ = begin_page();
  }

  void add(std::span<const std::byte> image, std::int32_t label) override {
    const std::size_t number = allocations_.size();
    if (image.size() > kPage) {
      throw ConfigError(
          "sample {} has {} bytes, more than a page of '{}' ({}); choose another format", number,
          image.size(), file_.path(), kPage);
    }
    if (file_.size() + image.size() > page_end_) page_end_ = begin_page();
    const std::optional<JpegSize> size = find_jpeg_size(image);
    if (!size) {
      throw DataError("cannot read sample {} of '{}' as a JPEG", number, file_.path());
    }
    const std::uint64_t place = file_.size();
    const std::int64_t wide = label;
    std::byte sample[kRowBytes] = {};
    std::memcpy(sample + 1, &size->width, sizeof(size->width));
    std::memcpy(sample + 3, &size->height, sizeof(size->height));
    std::memcpy(sample + 5, &place, sizeof(place));
    std::memcpy(sample + 16, &wide, sizeof(wide));
    samples_.insert(samples_.end(), std::begin(sample), std::end(sample));
    allocations_.push_back({number, place, image.size()});
    file_.append(image);
  }

  void finish() override {
    file_.append_zeros(static_cast<std::size_t>(page_end_ - file_.size()));
    const std::uint64_t place = file_.size();
    file_.append(std::as_bytes(std::span(allocations_)));
    file_.overwrite(kHeadBytes + 2 * kFieldBytes, samples_);
    file_.overwrite(kHeadBytes - sizeof(place), std::as_bytes(std::span(&place, 1)));
    file_.close();
  }

 private:
  static constexpr std::uint32_t kPage = std::uint32_t{8} << 20;  // FFCV's own
  static constexpr std::size_t kRowBytes = 24;

  struct Allocation {
    std::uint64_t sample, place, bytes;
  };

  void append_field(BetonType type, std::string_view name) {
    file_.append_number(type);
    file_.append(name);
    file_.append_zeros(static_cast<std::size_t>(kFieldBytes - 1 - name.size()));
  }
  /// Fills the current page, and returns the end of the next one.
  std::uint64_t begin_page() {
    file_.append_zeros(static_cast<std::size_t>((kPage - file_.size() % kPage) % kPage));
    return file_.size() + kPage;
  }

  ShardFile file_;
  std::vector<std::byte> samples_;
  std::vector<Allocation> allocations_;
  std::uint64_t page_end_ = 0;
};

}  // namespace

BetonLayout parse_beton_layout(std::span<const std::byte> file) {
  if (file.size() < kHeadBytes) {
    throw DataError("has {} bytes, fewer than a head", file.size());
  }
  if (const auto version = values::value_at<std::uint16_t>(file, 0); version != 2) {
    throw DataError("has version {}; only version 2 is supported", version);
  }
  BetonLayout layout;
  const std::uint64_t fields = values::value_at<std::uint16_t>(file, 2);
  layout.samples = values::value_at<std::uint64_t>(file, 8);
  layout.allocations_at = values::value_at<std::uint64_t>(file, 16);
  layout.rows_at = kHeadBytes + fields * kFieldBytes;
  if (layout.rows_at > file.size()) {
    throw DataError("ends within the descriptions of its {} fields", fields);
  }
  std::uint64_t alignment = 1;
  for (std::uint64_t i = 0; i < fields; ++i) {
    const std::uint64_t at = kHeadBytes + i * kFieldBytes;
    const auto type = values::value_at<std::uint8_t>(file, at);
    BetonField field{static_cast<BetonType>(type), name_of(file.subspan(at + 1, kNameBytes))};
    if (type >= std::size(kTypes)) {
      throw DataError("has field '{}' of type {}, which is unsupported", field.name, type);
    }
    field.offset = align(layout.row_bytes, kTypes[type].alignment);
    layout.row_bytes = field.offset + kTypes[type].bytes;
    alignment = std::max(alignment, kTypes[type].alignment);
    layout.fields.push_back(std::move(field));
  }
  layout.row_bytes = align(layout.row_bytes, alignment);
  if (layout.allocations_at == 0) {
    throw DataError("is incomplete: its writer did not write the table of allocations");
  }
  if (layout.allocations_at > file.size() || layout.allocations_at < layout.rows_at ||
      (file.size() - layout.allocations_at) % kAllocationBytes != 0) {
    throw DataError("has {} bytes, which do not end with the table of allocations at byte {}",
                    file.size(), layout.allocations_at);
  }
  if (fields > 0 && layout.samples > (layout.allocations_at - layout.rows_at) / layout.row_bytes) {
    throw DataError("has no room for the rows of its {} samples", layout.samples);
  }
  if ((file.size() - layout.allocations_at) / kAllocationBytes > layout.samples * fields) {
    throw DataError("has more allocations than {} samples of {} fields make", layout.samples,
                    fields);
  }
  layout.data_at = layout.rows_at + layout.samples * layout.row_bytes;
  return layout;
}

std::size_t choose_beton_field(const BetonLayout& layout, BetonType type,
                               ColumnArguments arguments) {
  arguments.name = arguments.name.substr(0, kNameBytes);
  std::vector<ColumnOffer> columns;
  for (const BetonField& field : layout.fields) {
    columns.push_back({field.name, std::string(kTypes[static_cast<std::size_t>(field.type)].name),
                       field.type == type});
  }
  return choose_column(columns, arguments);
}

bool is_raw_in_beton(std::span<const std::byte> row, const BetonField& image) noexcept {
  return values::value_at<std::uint8_t>(row, image.offset) == kRawMode;
}

BetonSample parse_beton_row(std::span<const std::byte> row, const BetonField& image,
                            const BetonField& label) {
  if (is_raw_in_beton(row, image)) {
    throw DataError(
        "its image is uncompressed (mode raw), and the decoder reads JPEG; pack it with "
        "RGBImageField(write_mode='jpg')");
  }
  if (const auto mode = values::value_at<std::uint8_t>(row, image.offset); mode != kJpegMode) {
    throw DataError("its image has mode {}; only mode 0 (jpg) is supported", mode);
  }
  const auto number = values::value_at<std::int64_t>(row, label.offset);
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max()) {
    throw DataError("its label is {}, which is not the number of a class", number);
  }
  return {static_cast<std::int32_t>(number),
          values::value_at<std::uint64_t>(row, image.offset + 5)};
}

std::optional<JpegSize> find_jpeg_size(std::span<const std::byte> file) noexcept {
  const auto number = [&](std::size_t at, std::size_t width) {
    return static_cast<unsigned>(values::number_of(file.subspan(at, width), true));
  };
  constexpr unsigned kBegin = 0xffd8, kScan = 0xda;
  if (file.size() < 2 || number(0, 2) != kBegin) return std::nullopt;
  for (std::size_t at = 2; file.size() - at >= 9 && number(at, 1) == 0xff;) {
    const unsigned marker = number(at + 1, 1);
    if (marker == 0xff) {  // fills the space before a marker
      ++at;
      continue;
    }
    // 0xc4, 0xc8 and 0xcc are no frames: Huffman tables, reserved, conditions of arithmetic coding.
    if (marker == 0xc0 || (marker > 0xc0 && marker <= 0xcf && marker % 4 != 0)) {
      const JpegSize size{static_cast<std::uint16_t>(number(at + 7, 2)),
                          static_cast<std::uint16_t>(number(at + 5, 2))};
      return size.width > 0 && size.height > 0 ? std::optional(size) : std::nullopt;
    }
    const std::size_t length = number(at + 2, 2);
    if (marker == kScan || length < 2 || length + 2 > file.size() - at) break;
    at += 2 + length;
  }
  return std::nullopt;
}

BetonAllocations::BetonAllocations(std::span<const std::byte> file, const BetonLayout& layout) {
  places_.reserve((file.size() - layout.allocations_at) / kAllocationBytes);
  for (std::uint64_t at = layout.allocations_at; at < file.size(); at += kAllocationBytes) {
    const auto offset = values::value_at<std::uint64_t>(file, at + 8),
               bytes = values::value_at<std::uint64_t>(file, at + 16);
    if (offset < layout.data_at || offset > layout.allocations_at ||
        bytes > layout.allocations_at - offset ||
        bytes > std::numeric_limits<std::uint32_t>::max()) {
      continue;
    }
    places_.push_back({offset, static_cast<std::uint32_t>(bytes)});
  }
  std::ranges::sort(places_);
}

std::uint32_t BetonAllocations::bytes_at(std::uint64_t offset) const noexcept {
  // An empty allocation may have the same offset as another; the last of equal offsets has the
  // bytes.
  const auto behind = std::ranges::upper_bound(places_, offset, {}, &Place::offset);
  if (behind == places_.begin() || std::prev(behind)->offset != offset) return 0;
  return std::prev(behind)->bytes;
}

extern constinit const SourceEntry beton_source{
    .name = "beton",
    .summary = "FFCV .beton files, version 2, with JPEG images",
    .options = kOptions,
    .make = make,
    .detects = is_beton,
};

extern constinit const DatasetWriterEntry beton_dataset_writer{
    .name = "beton",
    .summary = "FFCV file with the JPEGs unchanged",
    .make = make_writer<BetonWriter>,
};

}  // namespace penstock::datasets
