// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/mds.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "dataflow/datasets/choose_column.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "dataflow/values/numpy_array.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

using Json = nlohmann::json;

/// A value of the index, and its name in messages.
class Field {
 public:
  explicit Field(const Json& json, std::string path = {}) : json_(json), path_(std::move(path)) {}

  Field at(const char* name) const {
    if (!json_.is_object()) refuse("is no object");
    const auto found = json_.find(name);
    const std::string path = (path_.empty() ? "" : path_ + ".") + name;
    if (found == json_.end()) throw DataError("has no " + path);
    return Field(*found, path);
  }
  bool is_null() const { return json_.is_null(); }

  std::vector<Field> elements() const {
    if (!json_.is_array()) refuse("is no list");
    std::vector<Field> fields;
    for (const Json& element : json_) {
      fields.emplace_back(element, fmt::format("{}[{}]", path_, fields.size()));
    }
    return fields;
  }
  std::uint64_t number(std::uint64_t most) const {
    if (!json_.is_number_unsigned() || json_.get<std::uint64_t>() > most) {
      refuse(fmt::format("is no whole number from 0 to {}", most));
    }
    return json_.get<std::uint64_t>();
  }
  /// Removes control characters, which could change the terminal.
  std::string text() const {
    if (!json_.is_string()) refuse("is no text");
    std::string text = json_.get<std::string>();
    if (std::ranges::any_of(text, [](unsigned char c) { return c < ' ' || c == 127; })) {
      refuse("has control characters");
    }
    return text;
  }
  /// The path of a file, which must be inside the folder of the index.
  std::string file() const {
    const std::string name = text();
    const std::filesystem::path path(name);
    const bool upwards =
        std::ranges::any_of(path, [](const auto& part) { return part.native() == ".."; });
    if (!path.has_filename() || path.is_absolute() || upwards) {
      refuse(fmt::format("is '{}'; expected the name of a file in the same folder", name));
    }
    return name;
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw DataError("is not as expected: {} {}", path_.empty() ? "it" : path_, problem);
  }

 private:
  const Json& json_;
  std::string path_;
};

constexpr std::uint64_t kMost32 = std::numeric_limits<std::uint32_t>::max();

std::vector<MdsColumn> parse_columns(const Field& shard) {
  const std::vector<Field> names = shard.at("column_names").elements(),
                           encodings = shard.at("column_encodings").elements(),
                           sizes = shard.at("column_sizes").elements();
  if (names.size() != encodings.size() || names.size() != sizes.size()) {
    shard.refuse(fmt::format("has {} column names, {} encodings and {} sizes", names.size(),
                             encodings.size(), sizes.size()));
  }
  std::vector<MdsColumn> columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    MdsColumn column{names[i].text(), encodings[i].text()};
    if (!sizes[i].is_null()) column.bytes = static_cast<std::uint32_t>(sizes[i].number(kMost32));
    columns.push_back(std::move(column));
  }
  return columns;
}

MdsShard parse_shard(const Field& field) {
  if (field.at("version").number(kMost32) != 2) field.at("version").refuse("is not 2");
  if (const std::string format = field.at("format").text(); format != "mds") {
    field.at("format").refuse(fmt::format("is '{}', and mds is known", format));
  }
  MdsShard shard;
  const Field raw = field.at("raw_data");
  shard.file = raw.at("basename").file();
  shard.bytes = raw.at("bytes").number(std::numeric_limits<std::uint64_t>::max());
  shard.samples = field.at("samples").number(kMost32);
  shard.columns = parse_columns(field);
  if (const Field compressed = field.at("zip_data"); !compressed.is_null()) {
    shard.compressed_file = compressed.at("basename").file();
    shard.compression = field.at("compression").text();
  }
  return shard;
}

std::string_view kind_of(const MdsColumn& column) {
  return std::string_view(column.encoding).substr(0, column.encoding.find(':'));
}

struct WholeNumber {
  std::string_view encoding;
  std::uint8_t bytes;  ///< 0: digits
  bool negative;       ///< may be negative
};

constexpr WholeNumber kWholeNumbers[] = {
    {"int", 8, true},    {"int64", 8, true},   {"int32", 4, true},   {"int16", 2, true},
    {"int8", 1, true},   {"uint64", 8, false}, {"uint32", 4, false}, {"uint16", 2, false},
    {"uint8", 1, false}, {"str_int", 0, true},
};

const WholeNumber* find_whole_number(std::string_view encoding) noexcept {
  const auto* const row = std::ranges::find(kWholeNumbers, encoding, &WholeNumber::encoding);
  return row == std::end(kWholeNumbers) ? nullptr : row;
}

/// True if the column holds whole numbers of its encoding's size: int, int8 to int64, uint8 to
/// uint64, or digits (str_int).
bool is_label(const MdsColumn& column) noexcept {
  const WholeNumber* const row = find_whole_number(column.encoding);
  return row != nullptr && row->bytes == column.bytes;
}

/// The number in a column for which is_label() is true. Throws DataError if it is not a class
/// label.
std::int32_t parse_label(std::span<const std::byte> bytes, const MdsColumn& column) {
  const WholeNumber& row = *find_whole_number(column.encoding);
  const std::optional<std::int64_t> number =
      row.bytes == 0
          ? parse_number<std::int64_t>(values::text_of(bytes))
          : values::numpy_integer({.kind = row.negative ? 'i' : 'u', .bytes = row.bytes}, bytes);
  const std::int64_t label = number.value_or(-1);
  if (label < 0 || label > std::numeric_limits<std::int32_t>::max()) {
    throw DataError("its label in column '{}' numbers no class", column.name);
  }
  return static_cast<std::int32_t>(label);
}

}  // namespace

std::vector<MdsShard> parse_mds_index(std::string_view json) {
  const Json whole = Json::parse(json, nullptr, false);
  if (whole.is_discarded()) throw DataError("is no JSON");
  const Field field(whole);
  if (field.at("version").number(kMost32) != 2) field.at("version").refuse("is not 2");
  std::vector<MdsShard> shards;
  std::set<std::string> files;
  for (const Field& shard : field.at("shards").elements()) {
    shards.push_back(parse_shard(shard));
    if (!files.insert(shards.back().file).second) {
      throw DataError("has the shard '{}' twice", shards.back().file);
    }
  }
  return shards;
}

MdsColumns choose_mds_columns(const MdsShard& shard, std::string_view image,
                              std::string_view label) {
  const auto is_image = [](const MdsColumn& column) {
    return kind_of(column) == "jpeg" || kind_of(column) == "png";
  };
  const bool any_image = std::ranges::any_of(shard.columns, is_image);
  std::vector<ColumnOffer> images, labels;
  for (const MdsColumn& column : shard.columns) {
    const bool bytes = kind_of(column) == "bytes" && (!any_image || !image.empty());
    images.push_back(
        {column.name, column.encoding, (is_image(column) || bytes) && column.bytes == 0});
    labels.push_back({column.name, column.encoding, is_label(column)});
  }
  return {choose_column(images, {image, "JPEG images", "mds:image", kUsualImages}),
          choose_column(labels, {label, "whole numbers", "mds:label", kUsualLabels})};
}

void check_mds_shard(std::span<const std::byte> file, const MdsShard& shard) {
  if (file.size() != shard.bytes) {
    throw DataError("has {} bytes, and its index says {}", file.size(), shard.bytes);
  }
  if (file.size() < shard.samples_at()) {
    throw DataError("has no room for the offsets of {} samples", shard.samples);
  }
  if (const auto samples = values::value_at<std::uint32_t>(file, 0); samples != shard.samples) {
    throw DataError("has {} samples, and its index says {}", samples, shard.samples);
  }
}

std::span<const std::byte> mds_sample(std::span<const std::byte> file, const MdsShard& shard,
                                      std::uint64_t index) {
  const auto begin = values::value_at<std::uint32_t>(file, 4 * (index + 1)),
             end = values::value_at<std::uint32_t>(file, 4 * (index + 2));
  if (begin < shard.samples_at() || end < begin || end > file.size()) {
    throw DataError("its offsets are byte {} to byte {}, which is not a range of samples", begin,
                    end);
  }
  return file.subspan(begin, end - begin);
}

MdsImage parse_mds_sample(std::span<const std::byte> sample, const MdsShard& shard,
                          const MdsColumns& columns) {
  std::uint64_t sizes_end = 0;
  for (const MdsColumn& column : shard.columns) sizes_end += column.bytes == 0 ? 4 : 0;
  std::uint64_t at = sizes_end, size_at = 0;
  std::span<const std::byte> image, label;
  if (sample.size() < sizes_end) {
    throw DataError("it has {} bytes, fewer than the sizes of its columns", sample.size());
  }
  for (std::size_t i = 0; i < shard.columns.size(); ++i) {
    std::uint64_t bytes = shard.columns[i].bytes;
    if (bytes == 0) {
      bytes = values::value_at<std::uint32_t>(sample, size_at);
      size_at += 4;
    }
    if (bytes > sample.size() - at) {
      throw DataError("its column '{}' should have {} bytes, and {} are left",
                      shard.columns[i].name, bytes, sample.size() - at);
    }
    if (i == columns.image) image = sample.subspan(at, bytes);
    if (i == columns.label) label = sample.subspan(at, bytes);
    at += bytes;
  }
  if (at != sample.size()) {
    throw DataError("it has {} bytes that are in none of its columns", sample.size() - at);
  }
  if (image.empty()) {
    throw DataError("its column '{}' is empty", shard.columns[columns.image].name);
  }
  return {parse_label(label, shard.columns[columns.label]), image};
}

}  // namespace penstock::datasets
