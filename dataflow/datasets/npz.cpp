// SPDX-License-Identifier: Apache-2.0
// Archives of NumPy arrays (.npz), stored or deflated: datapoints as tensorpack's NumpySerializer
// writes them, an array of objects, or pixels, an array of images and an array of labels. A file
// has to be read as a whole, so its images are held in memory. The checksum of each array is
// compared then.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/datasets/choose_column.h"
#include "dataflow/datasets/datapoint.h"
#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/image_arrays.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/datasets/zip.h"
#include "dataflow/error.h"
#include "dataflow/machine/memory_limit.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

using Content = std::vector<std::byte>;

constexpr OptionSpec kOptions[] = {
    {"images", "", "array of the images; default: the only one, or the usual name"},
    {"labels", "", "array of the labels; default: the only one, or the usual name"},
    kImageArrayOptions[0],
    {"channels", "rgb", "order of colours in pixels: rgb or bgr; default of datapoints: bgr"},
};

constexpr std::string_view kUsualImageArrays[] = {"images", "image", "x", "data"};
constexpr std::string_view kUsualLabelArrays[] = {"labels", "label", "y"};

/// An array in an archive.
struct Member {
  ZipMember zip;
  std::string name, type;
  bool holds_objects = false;
  values::NumpyArray array;  ///< without its data
};

/// The arrays of an archive; those of other types than plain numbers or objects are left out.
std::vector<Member> list_arrays(std::span<const std::byte> archive) {
  constexpr std::size_t kLongestHeader = 70'000;
  constexpr std::string_view kEnd = ".npy";
  std::vector<Member> arrays;
  for (ZipMember& zip : list_zip(archive)) {
    if (!zip.name.ends_with(kEnd)) continue;
    Member member{.zip = std::move(zip), .name = {}, .type = {}, .array = {}};
    member.name = member.zip.name.substr(0, member.zip.name.size() - kEnd.size());
    const Content front = read_zip_member(archive, member.zip, kLongestHeader);
    member.holds_objects = !values::npy_pickle(front).empty();
    try {
      if (!member.holds_objects) member.array = values::parse_npy(front);
    } catch (const DataError&) {
      continue;
    }
    member.array.data = {};
    member.type = to_string(member.array.type);
    arrays.push_back(std::move(member));
  }
  return arrays;
}

Content read(const MappedFile& archive, const Member& member) {
  if (member.zip.bytes > available_memory() / 2) {
    throw ConfigError(
        "the array '{}' of '{}' has {} bytes, and less than half of the available memory may hold "
        "it; expected less; free memory, or unzip the file and name it with source=raw",
        member.name, archive.path(), member.zip.bytes);
  }
  return read_zip_member(archive.bytes(), member.zip);
}

const Member& images_of(std::span<const Member> arrays, const Options& options) {
  const auto fits = [](const values::NumpyArray& array) {
    return array.type.kind == 'u' && array.type.bytes == 1 && array.shape.size() >= 3;
  };
  return choose_array(arrays, options, "npz:images", fits, kUsualImageArrays);
}

const Member& labels_of(std::span<const Member> arrays, const Options& options) {
  const auto fits = [](const values::NumpyArray& array) {
    return (array.type.kind == 'u' || array.type.kind == 'i') && !array.shape.empty() &&
           array.shape.size() <= 2;
  };
  return choose_array(arrays, options, "npz:labels", fits, kUsualLabelArrays);
}

// ---- pixels -----------------------------------------------------------------

class PixelArchives final : public ImageArrayFormat {
 public:
  PixelArchives(PixelLayout layout, const Options& options)
      : ImageArrayFormat(layout, options), options_(options) {}

  MappedFile map(const std::string& path) override {
    const MappedFile archive(path);
    const std::vector<Member> arrays = list_arrays(archive.bytes());
    labels_[path] = read(archive, labels_of(arrays, options_));
    return {path, read(archive, images_of(arrays, options_))};
  }

 private:
  ImageArrays find(const MappedFile& shard) const override {
    return {.images = values::parse_npy(shard.bytes()),
            .labels = values::parse_npy(labels_.at(shard.path())),
            .label_path = shard.path()};
  }

  const Options options_;
  std::map<std::string, Content> labels_;  // by the path of their file
};

// ---- datapoints -------------------------------------------------------------

/// Calls `use` with the image and the label of each datapoint of an array [N, 2] of objects, or [N]
/// of lists of two.
template <typename Use>
void for_each_datapoint(const values::ValueTree& tree, const Use& use) {
  const values::Value& root = tree.root();
  const std::vector<std::int64_t>& shape = root.array.shape;
  const bool is_pairs = shape.size() == 2 && shape[1] == 2;
  if (root.kind != values::ValueKind::array || root.array.type.kind != values::kNumpyObject ||
      !(is_pairs || shape.size() == 1)) {
    throw DataError("an array that is not of datapoints; expected pairs of an image and a label");
  }
  const std::vector<values::ValueId>& items = tree.at(root.items[0]).items;
  for (std::size_t i = 0; i < items.size(); i += is_pairs ? 2 : 1) {
    const std::vector<values::ValueId>& pair = tree.at(items[i]).items;
    if (is_pairs) {
      use(tree.at(items[i]), tree.at(items[i + 1]));
    } else if (pair.size() == 2) {
      use(tree.at(pair[0]), tree.at(pair[1]));
    } else {
      use({}, {});
    }
  }
}

/// What stands in memory before an image.
struct Head {
  PixelLayout layout{};
  std::int32_t label = -1;
  std::uint32_t bytes = 0;
};

class DatapointArchives final : public RecordFormat {
 public:
  DatapointArchives(std::string name, bool bgr) : name_(std::move(name)), bgr_(bgr) {}

  SampleKind kind() const noexcept override { return kind_.value_or(SampleKind::encoded); }

  MappedFile map(const std::string& path) override {
    const MappedFile archive(path);
    const std::vector<Member> arrays = list_arrays(archive.bytes());
    const auto member = std::ranges::find(arrays, name_, &Member::name);
    if (member == arrays.end()) throw DataError("an archive without the array '{}'", name_);
    const Content file = read(archive, *member);
    const std::span<const std::byte> pickle = values::npy_pickle(file);
    // A datapoint is about ten values in at least 160 bytes.
    const auto most = static_cast<std::uint32_t>(
        std::clamp<std::size_t>(pickle.size() / 16, values::ValueLimits{}.values, 1U << 31));
    const values::ValueTree tree = values::parse_pickle(pickle, {.values = most});
    Content memory;
    memory.reserve(file.size());
    for_each_datapoint(tree, [&](const values::Value& image, const values::Value& label) {
      append(memory, image, label);
    });
    return {path, std::move(memory)};
  }

  void index(const MappedFile& shard, const AddRecord& add) const override {
    for (std::uint64_t at = 0; at < shard.bytes().size();) {
      const auto head = values::value_at<Head>(shard.bytes(), at);
      const auto bytes = static_cast<std::uint32_t>(sizeof head + head.bytes);
      add({at, bytes, head.label});
      at += bytes;
    }
  }

  void open(Sample& sample) const override {
    open_stored_image(sample, kind(), [](std::span<const std::byte> record) {
      const auto head = values::value_at<Head>(record, 0);
      if (head.bytes == 0) throw DataError("no datapoint of an image and a label");
      return StoredImage{
          .content = record.subspan(sizeof head), .layout = head.layout, .label = head.label};
    });
  }

 private:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;

  void append(Content& memory, const values::Value& image, const values::Value& label) {
    Head head;
    std::span<const std::byte> content;
    try {
      const StoredImage stored = image_of_datapoint(values::datapoint_of(image, label), bgr_);
      if (stored.content.size() > kMostBytes) throw DataError("an image of more than 1 GiB");
      content = stored.content;
      head = {stored.layout, stored.label, static_cast<std::uint32_t>(content.size())};
      kind_ = kind_.value_or(stored.layout.empty() ? SampleKind::encoded : SampleKind::pixels);
    } catch (const DataError&) {
      // open() refuses it when its turn comes.
    }
    const auto bytes = std::as_bytes(std::span(&head, 1));
    memory.insert(memory.end(), bytes.begin(), bytes.end());
    memory.insert(memory.end(), content.begin(), content.end());
  }

  const std::string name_;
  const bool bgr_;
  std::optional<SampleKind> kind_;  // of the first image
};

/// The format of the first archive that can be read.
std::unique_ptr<RecordFormat> probe(const FileList& files, const Options& options) {
  std::string problem;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const MappedFile archive(files.path(i));
    try {
      const std::vector<Member> arrays = list_arrays(archive.bytes());
      const auto objects = std::ranges::find(arrays, true, &Member::holds_objects);
      const bool bgr = options.choice("channels", {{"rgb"}, {"bgr"}}) == 1;
      if (objects != arrays.end() && !options.given("images")) {
        return std::make_unique<DatapointArchives>(objects->name,
                                                   bgr || !options.given("channels"));
      }
      const PixelLayout layout =
          layout_of_images(archive.path(), images_of(arrays, options).array, options);
      return std::make_unique<PixelArchives>(layout, options);
    } catch (const DataError& error) {
      problem = error.what();
    }
  }
  refuse_arrays(files.path(0), "cannot be used: " + problem);
}

bool is_npz(std::string_view name) { return name.ends_with(".npz"); }

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  FileList files = list_shards(plan, is_npz, "NumPy", "train.npz");
  std::unique_ptr<RecordFormat> format = probe(files, options);
  return make_record_source(plan, std::move(files), std::move(format));
}

// ---- writer -----------------------------------------------------------------

/// An archive of one deflated member, "buffer.npy", as numpy.savez_compressed writes it. Its
/// lengths are zip64's, and become known at its end.
class NpzWriter final : public ShardedWriter {
 public:
  explicit NpzWriter(const WriterPlan& plan) : ShardedWriter(plan) {
    constexpr int kRaw = -15, kMemory = 8;
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kRaw, kMemory,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  NpzWriter(const NpzWriter&) = delete;
  NpzWriter& operator=(const NpzWriter&) = delete;
  ~NpzWriter() override { deflateEnd(&stream_); }

 private:
  static constexpr std::string_view kName = "buffer.npy";
  static constexpr std::uint32_t kIn64 = 0xffffffff;
  static constexpr std::uint16_t kVersion = 45;
  static constexpr std::size_t kCrcAt = 14, kSizesAt = 30 + kName.size() + 4;  // in the header

  std::string shard_name(std::uint64_t) const override { return "train.npz"; }

  void write(ShardFile& shard, std::uint64_t sample, std::span<const std::byte> image,
             std::int32_t label) override {
    if (sample == 0) begin(shard);
    deflate(shard, values::pickled_datapoint(image, label));
  }

  void begin(ShardFile& shard) {
    shard.append("PK\x03\x04");
    append_common(shard);
    shard.append(kName);
    append_u16(shard, {1, 16});  // zip64's sizes
    shard.append_zeros(16);
    deflate(shard, npy_header("|O", fmt::format("{}, 2", plan_.samples)));
    deflate(shard, values::begin_pickled_datapoints(plan_.samples));
  }

  static void append_u16(ShardFile& shard, std::initializer_list<std::uint16_t> numbers) {
    for (const std::uint16_t number : numbers) shard.append_number(number);
  }

  /// The part that the local header and the directory's entry share, behind the first version.
  void append_common(ShardFile& shard) const {
    constexpr std::uint16_t kDeflated = 8, kTime = 0, kDate = 0x21;  // 1980-01-01
    append_u16(shard, {kVersion, 0, kDeflated, kTime, kDate});
    shard.append_number(crc_);
    for (const std::uint32_t size : {kIn64, kIn64}) shard.append_number(size);
    append_u16(shard, {static_cast<std::uint16_t>(kName.size()), 20});  // 20: of zip64's field
  }

  void end_shard(ShardFile& shard) override {
    deflate(shard, values::end_pickled_datapoints(), Z_FINISH);
    const std::uint64_t sizes[] = {bytes_, packed_bytes_}, directory = shard.size();
    shard.overwrite(kCrcAt, std::as_bytes(std::span(&crc_, 1)));
    shard.overwrite(kSizesAt, std::as_bytes(std::span(sizes)));
    shard.append("PK\x01\x02");
    append_u16(shard, {kVersion});
    append_common(shard);
    shard.append_zeros(14);  // no comment, first disk, no attributes, offset 0
    shard.append(kName);
    append_u16(shard, {1, 16});
    shard.append(std::as_bytes(std::span(sizes)));
    const std::uint64_t length = shard.size() - directory;
    shard.append("PK\x06\x06");
    shard.append_number(std::uint64_t{44});
    append_u16(shard, {kVersion, kVersion});
    shard.append_zeros(8);  // disks
    for (const std::uint64_t number : {std::uint64_t{1}, std::uint64_t{1}, length, directory}) {
      shard.append_number(number);
    }
    shard.append("PK\x06\x07");
    shard.append_number(std::uint32_t{0});
    shard.append_number(directory + length);
    shard.append_number(std::uint32_t{1});
    shard.append("PK\x05\x06");
    append_u16(shard, {0, 0, 1, 1});
    for (const std::uint32_t number : {kIn64, kIn64}) shard.append_number(number);
    shard.append_number(std::uint16_t{0});
  }

  void deflate(ShardFile& shard, std::string_view text, int flush = Z_NO_FLUSH) {
    const auto* const bytes = reinterpret_cast<const Bytef*>(text.data());
    crc_ = static_cast<std::uint32_t>(crc32_z(crc_, bytes, text.size()));
    bytes_ += text.size();
    stream_.next_in = const_cast<Bytef*>(bytes);
    stream_.avail_in = static_cast<uInt>(text.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = static_cast<uInt>(out_.size());
      ::deflate(&stream_, flush);
      const std::size_t count = out_.size() - stream_.avail_out;
      shard.append(std::span<const std::byte>(out_).first(count));
      packed_bytes_ += count;
    } while (stream_.avail_out == 0);
  }

  z_stream stream_{};
  Content out_ = Content(std::size_t{128} << 10);
  std::uint32_t crc_ = 0;
  std::uint64_t bytes_ = 0, packed_bytes_ = 0;
};

}  // namespace

extern constinit const SourceEntry npz_source{
    .name = "npz",
    .summary = "archives of NumPy arrays: tensorpack's datapoints (NumpySerializer), or pixels",
    .options = kOptions,
    .make = make,
    .detects = is_npz,
};

extern constinit const DatasetWriterEntry npz_dataset_writer{
    .name = "npz",
    .summary = "an archive of NumPy of tensorpack's datapoints, as NumpySerializer writes it",
    .shards = 1,
    .make = make_writer<NpzWriter>,
};

}  // namespace penstock::datasets
