// SPDX-License-Identifier: Apache-2.0
// Parses the index.json of MDS, and chooses columns from it.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "dataflow/datasets/column_choice.h"
#include "dataflow/datasets/mds.h"
#include "dataflow/datasets/mds_label.h"
#include "dataflow/error.h"

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
      fields.emplace_back(element, path_ + "[" + std::to_string(fields.size()) + "]");
    }
    return fields;
  }
  std::uint64_t number(std::uint64_t most) const {
    if (!json_.is_number_unsigned() || json_.get<std::uint64_t>() > most) {
      refuse("is no whole number from 0 to " + std::to_string(most));
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
      refuse("is '" + name + "'; expected the name of a file in the same folder");
    }
    return name;
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw DataError("is not as expected: " + (path_.empty() ? "it" : path_) + " " + problem);
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
    shard.refuse("has " + std::to_string(names.size()) + " column names, " +
                 std::to_string(encodings.size()) + " encodings and " +
                 std::to_string(sizes.size()) + " sizes");
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
    field.at("format").refuse("is '" + format + "', and mds is known");
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
      throw DataError("has the shard '" + shards.back().file + "' twice");
    }
  }
  return shards;
}

MdsColumns choose_mds_columns(const MdsShard& shard, std::string_view image,
                              std::string_view label) {
  const bool any_jpeg = std::ranges::any_of(
      shard.columns, [](const MdsColumn& column) { return kind_of(column) == "jpeg"; });
  std::vector<ColumnOffer> images, labels;
  for (const MdsColumn& column : shard.columns) {
    const bool jpeg = kind_of(column) == "jpeg";
    const bool bytes = kind_of(column) == "bytes" && (!any_jpeg || !image.empty());
    images.push_back({column.name, column.encoding, (jpeg || bytes) && column.bytes == 0});
    labels.push_back({column.name, column.encoding, is_mds_label(column)});
  }
  return {choose_column(images, {image, "JPEG images", "mds:image", kUsualImages}),
          choose_column(labels, {label, "whole numbers", "mds:label", kUsualLabels})};
}

}  // namespace penstock::datasets
