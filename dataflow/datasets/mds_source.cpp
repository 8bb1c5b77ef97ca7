// SPDX-License-Identifier: Apache-2.0
// The source of MosaicML Streaming's MDS. Shards are read in the order of their index.json. A
// record is a whole sample. If a sample has no valid position, its record is the entry of the
// shard's table that should hold the position.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dataflow/datasets/mds.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/error.h"

namespace penstock::datasets {
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

using Descriptions = std::unordered_map<std::string, Described>;  // by path

[[noreturn]] void refuse(const std::string& what, const std::string& problem) {
  throw ConfigError(
      "the {} {}; expected a data set that streaming's MDSWriter finished; check --data-dir", what,
      problem);
}

fs::path find_index(const fs::path& place) {
  std::error_code error;
  if (!fs::is_directory(place, error)) return place;
  if (fs::exists(place / "index.json", error)) return place / "index.json";
  const bool is_parent = fs::exists(place / "train" / "index.json", error);
  refuse(fmt::format("folder '{}'", place.native()),
         "has no index.json" +
             (is_parent ? fmt::format(" (did you mean '{}'?)", (place / "train").native()) : ""));
}

/// The command with which a user decompresses to `file`.
std::string decompression(const std::string& compression, const std::string& compressed,
                          const std::string& file) {
  const std::string kind = compression.substr(0, compression.find(':'));
  const std::string from = fmt::format(" '{}'", compressed), to = fmt::format(" '{}'", file);
  if (kind == "zstd") return fmt::format("run `zstd -d{} -o{}`", from, to);
  if (kind == "br") return fmt::format("run `brotli -d{} -o{}`", from, to);
  if (kind == "gz") return fmt::format("run `gunzip -c{} >{}`", from, to);
  if (kind == "bz2") return fmt::format("run `bunzip2 -c{} >{}`", from, to);
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
      refuse(fmt::format("shard '{}'", file.native()), "is missing");
    }
    throw ConfigError(
        "the shard '{}' exists only in compressed form ({}); expected an uncompressed file; {}, "
        "and do so for each shard",
        file.native(), shard.compression,
        decompression(shard.compression, compressed.native(), file.native()));
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
      refuse(fmt::format("shard '{}'", file.path()), error.what());
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
    refuse(fmt::format("index '{}'", index.path()), error.what());
  }
  return make_record_source(plan, std::move(files), std::make_unique<Mds>(std::move(descriptions)));
}

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

}  // namespace penstock::datasets
