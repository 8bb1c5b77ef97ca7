// SPDX-License-Identifier: Apache-2.0
// MosaicML Streaming's MDS: the parser, the source and the writer. Shards are read in the order of
// their index.json. A record is a whole sample. If a sample has no valid position, its record is
// the entry of the shard's table that should hold the position.
#include "dataflow/datasets/mds.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/error.h"
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

struct WholeNumber {
  std::string_view encoding;
  std::uint32_t bytes;  ///< 0: digits
  bool negative;        ///< may be negative
};

constexpr WholeNumber kWholeNumbers[] = {
    {"int", 8, true},    {"int64", 8, true},   {"int32", 4, true},   {"int16", 2, true},
    {"int8", 1, true},   {"uint64", 8, false}, {"uint32", 4, false}, {"uint16", 2, false},
    {"uint8", 1, false}, {"str_int", 0, true},
};

const WholeNumber* find_whole_number(std::string_view encoding) noexcept {
  for (const WholeNumber& row : kWholeNumbers) {
    if (row.encoding == encoding) return &row;
  }
  return nullptr;
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
  const WholeNumber* const row = find_whole_number(column.encoding);
  std::int64_t label = -1;
  switch (column.bytes) {
    case 0: {
      const char* const begin = reinterpret_cast<const char*>(bytes.data());
      const char* const end = begin + bytes.size();
      const auto [last, error] = std::from_chars(begin, end, label);
      if (error != std::errc() || last != end) label = -1;
      break;
    }
    case 1:
      label = row->negative ? std::int64_t{values::value_at<std::int8_t>(bytes, 0)}
                            : std::int64_t{values::value_at<std::uint8_t>(bytes, 0)};
      break;
    case 2:
      label = row->negative ? std::int64_t{values::value_at<std::int16_t>(bytes, 0)}
                            : std::int64_t{values::value_at<std::uint16_t>(bytes, 0)};
      break;
    case 4:
      label = row->negative ? std::int64_t{values::value_at<std::int32_t>(bytes, 0)}
                            : std::int64_t{values::value_at<std::uint32_t>(bytes, 0)};
      break;
    default:  // a uint64 that looks negative here is too large anyway
      label = values::value_at<std::int64_t>(bytes, 0);
  }
  if (label < 0 || label > std::numeric_limits<std::int32_t>::max()) {
    throw DataError("its label in column '" + column.name + "' numbers no class");
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
      throw DataError("has the shard '" + shards.back().file + "' twice");
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
    throw DataError("has " + std::to_string(file.size()) + " bytes, and its index says " +
                    std::to_string(shard.bytes));
  }
  if (file.size() < shard.samples_at()) {
    throw DataError("has no room for the offsets of " + std::to_string(shard.samples) + " samples");
  }
  if (const auto samples = values::value_at<std::uint32_t>(file, 0); samples != shard.samples) {
    throw DataError("has " + std::to_string(samples) + " samples, and its index says " +
                    std::to_string(shard.samples));
  }
}

std::span<const std::byte> mds_sample(std::span<const std::byte> file, const MdsShard& shard,
                                      std::uint64_t index) {
  const auto begin = values::value_at<std::uint32_t>(file, 4 * (index + 1)),
             end = values::value_at<std::uint32_t>(file, 4 * (index + 2));
  if (begin < shard.samples_at() || end < begin || end > file.size()) {
    throw DataError("its offsets are byte " + std::to_string(begin) + " to byte " +
                    std::to_string(end) + ", which is not a range of samples");
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
    throw DataError("it has " + std::to_string(sample.size()) +
                    " bytes, fewer than the sizes of its columns");
  }
  for (std::size_t i = 0; i < shard.columns.size(); ++i) {
    std::uint64_t bytes = shard.columns[i].bytes;
    if (bytes == 0) {
      bytes = values::value_at<std::uint32_t>(sample, size_at);
      size_at += 4;
    }
    if (bytes > sample.size() - at) {
      throw DataError("its column '" + shard.columns[i].name + "' should have " +
                      std::to_string(bytes) + " bytes, and " + std::to_string(sample.size() - at) +
                      " are left");
    }
    if (i == columns.image) image = sample.subspan(at, bytes);
    if (i == columns.label) label = sample.subspan(at, bytes);
    at += bytes;
  }
  if (at != sample.size()) {
    throw DataError("it has " + std::to_string(sample.size() - at) +
                    " bytes that are in none of its columns");
  }
  if (image.empty()) {
    throw DataError("its column '" + shard.columns[columns.image].name + "' is empty");
  }
  return {parse_label(label, shard.columns[columns.label]), image};
}

namespace {

namespace fs = std::filesystem;

constexpr OptionSpec kOptions[] = {
    {"image", "",
     "column of the images; default: the only one of encoding jpeg, else bytes, or one named "
     "image, img, jpg, jpeg or x"},
    {"label", "",
     "column of the labels; default: the only one of integers, or one named label, labels, class, "
     "cls, target or y"},
};

/// The index's description of a shard.
struct Described {
  MdsShard shard;
  MdsColumns columns;
};

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};

using Descriptions = std::unordered_map<std::string, Described, Hash, std::equal_to<>>;  // by path

[[noreturn]] void refuse(const std::string& what, const std::string& problem) {
  throw ConfigError("the " + what + " " + problem +
                    "; expected a data set that streaming's MDSWriter finished; check --data-dir");
}

fs::path find_index(const fs::path& place) {
  std::error_code error;
  if (!fs::is_directory(place, error)) return place;
  if (fs::exists(place / "index.json", error)) return place / "index.json";
  const bool is_parent = fs::exists(place / "train" / "index.json", error);
  refuse("folder '" + place.native() + "'",
         "has no index.json" +
             (is_parent ? " (did you mean '" + (place / "train").native() + "'?)" : ""));
}

/// The command with which a user decompresses to `file`.
std::string decompression(const std::string& compression, const std::string& compressed,
                          const std::string& file) {
  const std::string kind = compression.substr(0, compression.find(':'));
  const std::string from = " '" + compressed + "'", to = " '" + file + "'";
  if (kind == "zstd") return "run `zstd -d" + from + " -o" + to + "`";
  if (kind == "br") return "run `brotli -d" + from + " -o" + to + "`";
  if (kind == "gz") return "run `gunzip -c" + from + " >" + to + "`";
  if (kind == "bz2") return "run `bunzip2 -c" + from + " >" + to + "`";
  return "decompress it to" + to;
}

/// Checks that every shard exists.
void check_files(const fs::path& folder, const std::vector<MdsShard>& shards) {
  std::error_code error;
  for (const MdsShard& shard : shards) {
    const fs::path file = folder / shard.file;
    if (fs::exists(file, error)) continue;
    const fs::path compressed = folder / shard.compressed_file;
    if (shard.compressed_file.empty() || !fs::exists(compressed, error)) {
      refuse("shard '" + file.native() + "'", "is missing");
    }
    throw ConfigError("the shard '" + file.native() + "' exists only in compressed form (" +
                      shard.compression + "); expected an uncompressed file; " +
                      decompression(shard.compression, compressed.native(), file.native()) +
                      ", and do so for each shard");
  }
}

class Mds final : public RecordFormat {
 public:
  explicit Mds(Descriptions descriptions) : descriptions_(std::move(descriptions)) {}

  void index(const MappedFile& file, const AddRecord& add) const override {
    const auto& [shard, columns] = descriptions_.at(file.path());
    try {
      check_mds_shard(file.bytes(), shard);
    } catch (const DataError& error) {
      refuse("shard '" + file.path() + "'", error.what());
    }
    for (std::uint64_t i = 0; i < shard.samples; ++i) {
      Record record{4 * (i + 1), 8, -1};
      try {
        const std::span<const std::byte> sample = mds_sample(file.bytes(), shard, i);
        record.offset = static_cast<std::uint64_t>(sample.data() - file.bytes().data());
        record.bytes = static_cast<std::uint32_t>(sample.size());
        record.label = parse_mds_sample(sample, shard, columns).label;
      } catch (const DataError&) {
        record.label = -1;  // open() says why
      }
      add(record);
    }
  }

  void open(Sample& sample) const override {
    const auto& [shard, columns] = descriptions_.find(sample.file)->second;
    try {
      if (sample.offset < shard.samples_at()) {
        throw DataError("the offsets there leave no place for it");
      }
      sample.lent = parse_mds_sample(sample.lent, shard, columns).image;
    } catch (const DataError& error) {
      refuse_record(sample, error.what());
    }
  }

 private:
  const Descriptions descriptions_;
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  const MappedFile index(find_index(plan.directory).native());
  const fs::path folder = fs::path(index.path()).parent_path();
  FileList files;
  Descriptions descriptions;
  try {
    const std::vector<MdsShard> shards = parse_mds_index(
        {reinterpret_cast<const char*>(index.bytes().data()), index.bytes().size()});
    check_files(folder, shards);
    for (const MdsShard& shard : shards) {
      const std::string path = (folder / shard.file).native();
      const MdsColumns columns =
          choose_mds_columns(shard, options.text("image"), options.text("label"));
      files.add(path);
      descriptions.emplace(path, Described{shard, columns});
    }
  } catch (const DataError& error) {
    refuse("index '" + index.path() + "'", error.what());
  }
  return make_record_source(plan, std::move(files), std::make_unique<Mds>(std::move(descriptions)));
}

// ---- writer -----------------------------------------------------------------

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
          fmt::format("'{}' would have more than 2 GiB, and MDS counts bytes in 32 "
                      "bits; expected smaller shards; pass a greater --shards",
                      shard.path()));
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

extern constinit const SourceEntry mds_source{
    .name = "mds",
    .summary = "MosaicML Streaming MDS shards, uncompressed, with index.json",
    .options = kOptions,
    .make = make,
    .detects =
        [](std::string_view name) {
          return name.ends_with(".mds") || name.find(".mds.") != std::string_view::npos;
        },
};

extern constinit const DatasetWriterEntry mds_dataset_writer{
    .name = "mds",
    .summary = "MosaicML Streaming shards with index.json",
    .make = make_writer<MdsWriter>,
};

}  // namespace penstock::datasets
