// SPDX-License-Identifier: Apache-2.0
// The source for LMDB databases of images: Caffe's, whose values are Datum messages, and those of
// tensorpack's LMDBSerializer. Values are views of the mapped file. Indexing looks into each value
// for its label.
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "dataflow/datasets/datum.h"
#include "dataflow/datasets/lmdb_tree.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "dataflow/values/datapoint.h"
#include "dataflow/values/pickle.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

constexpr OptionSpec kOptions[] = {
    {"format", "auto",
     "format of values: datum (Caffe), datapoint (tensorpack) or auto (as the first value)"},
    {"channels", "bgr", "order of colours in raw pixels: bgr (as in OpenCV) or rgb"},
};

enum class Format : std::uint8_t { datum, datapoint };

/// An image as a value stores it.
struct StoredImage {
  std::span<const std::byte> content;
  PixelLayout layout{};
  std::int32_t label = -1;
  values::ValueTree owner;  ///< holds the content if the value does not contain it as is
};

std::int32_t label_of(std::int64_t label) {
  const bool fits = label >= 0 && label < std::numeric_limits<std::int32_t>::max();
  return fits ? static_cast<std::int32_t>(label) : -1;
}

/// Throws DataError if the number of pixels is wrong or too large.
PixelLayout make_layout(std::int64_t width, std::int64_t height, std::int64_t channels,
                        std::size_t bytes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (width < 1 || height < 1 || (channels != 1 && channels != 3) ||
      height > kMost / channels / width ||
      static_cast<std::uint64_t>(width * height * channels) != bytes) {
    throw DataError("pixels of " + std::to_string(height) + "x" + std::to_string(width) + "x" +
                    std::to_string(channels) + " in " + std::to_string(bytes) +
                    " bytes; expected one byte for each of 1 or 3 channels");
  }
  return {.width = static_cast<std::int32_t>(width),
          .height = static_cast<std::int32_t>(height),
          .channels = static_cast<std::int32_t>(channels)};
}

StoredImage image_of_datum(std::span<const std::byte> value, bool bgr) {
  const Datum datum = parse_datum(value);
  StoredImage image{
      .content = datum.data, .layout = {}, .label = label_of(datum.label), .owner = {}};
  if (datum.has_floats) throw DataError("a Datum of floats; expected bytes");
  if (datum.encoded) return image;
  image.layout = make_layout(datum.width, datum.height, datum.channels, datum.data.size());
  image.layout.planar = true;
  image.layout.bgr = bgr;
  return image;
}

StoredImage image_of_datapoint(std::span<const std::byte> value, bool bgr) {
  values::Datapoint point = values::parse_datapoint(value);
  StoredImage image{
      .content = point.image, .layout = {}, .label = label_of(point.label), .owner = {}};
  const std::vector<std::int64_t>& shape = point.shape;
  if (shape.size() == 2 || shape.size() == 3) {
    image.layout =
        make_layout(shape[1], shape[0], shape.size() == 3 ? shape[2] : 1, point.image.size());
    image.layout.bgr = bgr;
  } else if (shape.size() > 3) {
    throw DataError("an image of more than three dimensions");
  }
  image.owner = std::move(point.tree);
  return image;
}

class ImageDatabase final : public RecordFormat {
 public:
  ImageDatabase(Format format, bool bgr, SampleKind kind)
      : format_(format), bgr_(bgr), kind_(kind) {}

  static StoredImage parse(Format format, std::span<const std::byte> value, bool bgr) {
    return format == Format::datum ? image_of_datum(value, bgr) : image_of_datapoint(value, bgr);
  }

  SampleKind kind() const noexcept override { return kind_; }

  void index(const MappedFile& shard,
             const std::function<void(const Record&)>& add) const override {
    const auto found = [&](const LmdbEntry& entry) {
      if (is_list_of_keys(entry)) return true;
      Record record{static_cast<std::uint64_t>(entry.value.data() - shard.bytes().data()),
                    static_cast<std::uint32_t>(entry.value.size()), -1};
      try {
        record.label = parse(format_, entry.value, bgr_).label;
      } catch (const DataError&) {
        // open() reports it when its turn comes.
      }
      add(record);
      return true;
    };
    try {
      read_lmdb(shard.bytes(), found, [&](std::uint64_t offset) { add({offset, 0, -1}); });
    } catch (const DataError& error) {
      throw ConfigError("the data file '" + shard.path() + "' is " + error.what());
    }
  }

  void open(Sample& sample) const override {
    if (sample.lent.empty()) refuse_record(sample, "it has no value, or the database is damaged");
    const std::span<const std::byte> value = sample.lent;
    std::string problem;
    try {
      const StoredImage image = parse(format_, value, bgr_);
      if (image.layout.empty() != (kind_ == SampleKind::encoded)) {
        problem = "it is an image of another kind than the first (encoded, or pixels)";
      } else if (image.content.empty()) {
        problem = "its image is empty";
      } else {
        sample.layout = image.layout;
        give_image(sample, image.content, value);
      }
    } catch (const DataError& error) {
      problem = std::string("it is ") + error.what();
    }
    if (!problem.empty()) refuse_record(sample, problem);
  }

  /// True for the list of keys that tensorpack stores beside the datapoints.
  static bool is_list_of_keys(const LmdbEntry& entry) {
    constexpr std::string_view kKey = "__keys__";
    return std::string_view(reinterpret_cast<const char*>(entry.key.data()), entry.key.size()) ==
           kKey;
  }

 private:
  const Format format_;
  const bool bgr_;
  const SampleKind kind_;
};

Format format_of(std::span<const std::byte> value, const std::string& wanted) {
  if (wanted == "datum") return Format::datum;
  if (wanted == "datapoint") return Format::datapoint;
  if (wanted != "auto") {
    throw ConfigError("lmdb: option 'format' is '" + wanted +
                      "'; expected datum, datapoint or auto");
  }
  // 0x92 begins a list of two in MessagePack; a Datum begins with a tag below 0x40.
  const bool list = !value.empty() && value[0] == std::byte{0x92};
  return list || values::is_pickle(value) ? Format::datapoint : Format::datum;
}

bool parse_bgr(const std::string& text) {
  if (text == "bgr" || text == "rgb") return text == "bgr";
  throw ConfigError("lmdb: option 'channels' is '" + text + "'; expected bgr or rgb");
}

FileList list_databases(const DataPlan& plan) {
  const auto is_database = [](std::string_view name) {
    return name.ends_with(".mdb") ? name != "lock.mdb" : name.ends_with(".lmdb");
  };
  return list_shards(plan, is_database, "LMDB", "data.mdb or train.lmdb");
}

/// Finds the format from the first readable image.
std::unique_ptr<RecordFormat> probe(const MappedFile& file, const Options& options) {
  const bool bgr = parse_bgr(options.text("channels"));
  std::unique_ptr<RecordFormat> result;
  std::string problem = "an LMDB file without values";
  int tries = 100;
  const auto found = [&](const LmdbEntry& entry) {
    if (ImageDatabase::is_list_of_keys(entry)) return true;
    try {
      const Format format = format_of(entry.value, options.text("format"));
      const StoredImage image = ImageDatabase::parse(format, entry.value, bgr);
      const SampleKind kind = image.layout.empty() ? SampleKind::encoded : SampleKind::pixels;
      result = std::make_unique<ImageDatabase>(format, bgr, kind);
    } catch (const DataError& error) {
      problem = error.what();
    }
    return result == nullptr && --tries > 0;
  };
  try {
    read_lmdb(file.bytes(), found, [](std::uint64_t) {});
  } catch (const DataError& error) {
    problem = error.what();
  }
  if (result) return result;
  throw ConfigError("the data file '" + file.path() + "' cannot be used; its last try was " +
                    problem + "; state lmdb:format, or check --data-dir");
}

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  FileList files = list_databases(plan);
  std::unique_ptr<RecordFormat> format = probe(MappedFile(files.path(0)), options);
  return make_record_source(plan, std::move(files), std::move(format));
}

}  // namespace

extern constinit const SourceEntry lmdb_source{
    .name = "lmdb",
    .summary = "LMDB databases of Caffe (Datum) and of tensorpack (LMDBSerializer)",
    .options = kOptions,
    .make = make,
};

}  // namespace penstock::datasets
