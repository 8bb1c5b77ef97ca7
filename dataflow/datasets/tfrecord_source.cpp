// SPDX-License-Identifier: Apache-2.0
// The source of TFRecord files, which hold tf.train.Example messages, as ImageNet for
// tf_cnn_benchmarks and MLPerf, or tensorpack's datapoints. Indexing touches the lengths and the
// small features; a record's CRCs are compared when it is read. Compressed shards are streams.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/datasets/datapoint.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/datasets/shard_stream.h"
#include "dataflow/datasets/stream_source.h"
#include "dataflow/datasets/tfrecord.h"
#include "dataflow/error.h"
#include "dataflow/values/value_tree.h"

namespace penstock::datasets {
namespace {

constexpr OptionSpec kOptions[] = {
    {"image_key", "image/encoded", "feature that holds the image"},
    {"label_key", "image/class/label", "feature that holds the label; none: all labels are 0"},
    {"label_base", "",
     "label of the first class; default: 1 (ImageNet files reserve 0 for the background), for "
     "datapoint 0"},
    {"record", "auto",
     "format of records: example (tf.train.Example), datapoint (tensorpack's "
     "TFRecordSerializer) or auto (as each record begins)"},
    {"crc", "true", "verify the CRCs of each record"},
    kStreamOptions[0],
    kStreamOptions[1],
    kStreamOptions[2],
    kStreamOptions[3],
};

/// What a record holds, by what the options expect of it.
struct JudgedRecord {
  ExampleView view;
  values::ValueTree owner{};  ///< holds the image if the record does not contain it as is
  std::int32_t label = -1;    ///< counted from 0; negative if it is not a class label
  std::string problem{};      ///< empty: it is a valid sample

  /// If the record is intact, this shows that the options do not match the file. A label outside
  /// the classes is not damage, and the first record has everything.
  bool misfits(std::uint64_t offset) const noexcept {
    return !problem.empty() && (offset == 0 || (view.label && label < 0));
  }
};

/// What the options expect of a record.
struct RecordRules {
  enum class Kind : std::uint8_t { example, datapoint, either } kind;
  std::string image_key, label_key;
  std::int64_t example_base = 1, datapoint_base = 0;  ///< the label of the first class
  bool check = true;

  explicit RecordRules(const Options& options)
      : kind(static_cast<Kind>(options.choice("record", {{"example"}, {"datapoint"}, {"auto"}}))),
        image_key(options.text("image_key")),
        label_key(options.text("label_key") == "none" ? "" : options.text("label_key")),
        check(options.flag("crc")) {
    if (options.text("label_base").empty()) return;
    example_base = datapoint_base = options.integer("label_base");
    constexpr std::int64_t kMaxBase = std::numeric_limits<std::int32_t>::max();
    if (example_base < -kMaxBase || example_base > kMaxBase) {
      throw ConfigError(
          "tfrecord: option 'label_base' is {}; expected the label of the first class, such as 0 "
          "or 1",
          example_base);
    }
  }

  JudgedRecord judge(std::span<const std::byte> data) const {
    JudgedRecord record;
    const bool is_datapoint =
        kind == Kind::datapoint || (kind == Kind::either && begins_as_datapoint(data));
    const std::int64_t base = is_datapoint ? datapoint_base : example_base;
    try {
      if (is_datapoint) {
        values::Datapoint point = values::parse_datapoint(data);
        if (point.shape.size() > 1) {
          throw DataError("its image is pixels; expected an encoded image");
        }
        record.view = {.image = point.image, .label = point.label};
        record.owner = std::move(point.tree);
      } else {
        record.view = parse_example(data, {image_key, label_key});
      }
      record.label = label_of(record.view, base);
      record.problem = problem_of(record.view, base);
    } catch (const DataError& error) {
      record.problem = error.what();
    }
    return record;
  }

 private:
  std::int32_t label_of(const ExampleView& view, std::int64_t base) const noexcept {
    if (label_key.empty()) return 0;
    if (!view.label) return -1;
    constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
    if (*view.label < base || *view.label - kMax > base) return -1;
    return static_cast<std::int32_t>(*view.label - base);
  }

  std::string problem_of(const ExampleView& view, std::int64_t base) const {
    if (!view.image) return fmt::format("it has no feature '{}', the image", image_key);
    if (view.image->empty()) return "its image is empty";
    if (label_of(view, base) >= 0) return {};
    if (!view.label) return fmt::format("it has no feature '{}', the label", label_key);
    return fmt::format("its label is {}, and the first class is {}", *view.label, base);
  }
};

[[noreturn]] void refuse_file(const std::string& path) {
  throw ConfigError(
      "the data file '{}' holds no TFRecords: it does not begin with a length and the CRC of that "
      "length; expected TFRecord files of tf.train.Example; check --data-dir",
      path);
}

/// Throws ConfigError: an intact record shows that the options do not match the file.
[[noreturn]] void refuse_options(const std::string& path, std::uint64_t offset,
                                 std::span<const std::byte> data, const std::string& problem) {
  std::string keys = "cannot be told";
  try {
    keys = list_example_keys(data);
  } catch (const DataError&) {  // it is not an Example
  }
  throw ConfigError(
      "the record at byte {} of '{}' is whole, but {}; expected a tf.train.Example with an image "
      "and a label; its features: {}; state "
      "source='tfrecord:image_key=...,label_key=...,label_base=0'",
      offset, path, problem, keys);
}

class TfRecordFormat final : public RecordFormat {
 public:
  TfRecordFormat(RecordRules rules, std::int32_t classes)
      : rules_(std::move(rules)), classes_(classes) {}

  void index(const MappedFile& shard, const AddRecord& add) const override {
    const std::span<const std::byte> file = shard.bytes();
    for (std::uint64_t at = 0; at < file.size();) {
      const std::span<const std::byte> rest = file.subspan(at);
      std::uint64_t bytes = rest.size();
      std::int32_t label = -1;
      if (const std::optional<std::uint64_t> data_bytes = length_of(shard, at)) {
        bytes = kTfRecordFrame + *data_bytes;
        label = label_at(shard, at, rest.first(bytes));
      }
      add({at, static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, kMaxRecord)), label});
      at += bytes;
    }
  }

  void open(Sample& sample) const override {
    try {
      const std::span<const std::byte> data = tfrecord_data(sample.lent, rules_.check);
      const JudgedRecord record = rules_.judge(data);
      if (!record.problem.empty()) throw DataError(record.problem);
      read_boxes(record.view, sample.boxes);
      give_image(sample, *record.view.image, data);
    } catch (const DataError& error) {
      refuse_record(sample, error.what());
    }
  }

 private:
  static constexpr std::uint64_t kMaxRecord = std::numeric_limits<std::uint32_t>::max();

  /// The data length of the record at byte `at`. Empty if the start of the next record is unknown.
  std::optional<std::uint64_t> length_of(const MappedFile& shard, std::uint64_t at) const {
    const std::span<const std::byte> rest = shard.bytes().subspan(at);
    TfRecordHeader header;
    if (rest.size() >= kTfRecordHeader) {
      header = parse_tfrecord_header(rest.first<kTfRecordHeader>());
    }
    const bool fits =
        rest.size() >= kTfRecordFrame && header.data_bytes <= rest.size() - kTfRecordFrame;
    if (fits && (header.crc_matches || !rules_.check)) return header.data_bytes;
    if (at == 0 && !header.crc_matches) refuse_file(shard.path());
    return std::nullopt;
  }

  /// The label, counted from 0; negative: the record is damaged. Throws ConfigError if an intact
  /// record shows that the options do not match the file.
  std::int32_t label_at(const MappedFile& shard, std::uint64_t at,
                        std::span<const std::byte> record) const {
    const std::span<const std::byte> data =
        record.subspan(kTfRecordHeader, record.size() - kTfRecordFrame);
    const auto is_intact = [&] { return tfrecord_data_match(data, record.last<4>()); };
    const JudgedRecord judged = rules_.judge(data);
    if (judged.misfits(at) && is_intact()) refuse_options(shard.path(), at, data, judged.problem);
    if (!judged.problem.empty()) return -1;
    // A label outside the classes is refused before the run, unless it is damage.
    return judged.label < classes_ || is_intact() ? judged.label : -1;
  }

  const RecordRules rules_;
  const std::int32_t classes_;
};

class TfRecordStream final : public SampleStream {
 public:
  TfRecordStream(ByteStream& bytes, const std::string& path, const RecordRules& rules,
                 std::uint64_t max_record)
      : bytes_(bytes), path_(path), rules_(rules), max_record_(max_record) {}

  bool next(StreamedSample& sample, bool wants_image) override {
    sample = {};
    sample.offset = bytes_.position();
    if (ended_) return false;
    try {
      if (!read_record()) return false;
    } catch (const DataError& error) {  // the start of the next record is unknown
      sample.problem = error.what();
      ended_ = true;
      return true;
    }
    const std::span<const std::byte> data =
        std::span(record_).subspan(kTfRecordHeader, record_.size() - kTfRecordFrame);
    JudgedRecord judged;
    try {
      static_cast<void>(tfrecord_data(record_, rules_.check));
      judged = rules_.judge(data);
      read_boxes(judged.view, sample.boxes);
    } catch (const DataError& error) {
      judged.problem = error.what();
    }
    if (judged.misfits(sample.offset) &&
        tfrecord_data_match(data, std::span<const std::byte>(record_).last<4>())) {
      refuse_options(path_, sample.offset, data, judged.problem);
    }
    sample.problem = std::move(judged.problem);
    if (!sample.problem.empty()) return true;
    const std::span<const std::byte> image = *judged.view.image;
    sample.label = judged.label;
    sample.image_bytes = image.size();
    if (wants_image) sample.image.assign(image.begin(), image.end());
    return true;
  }

 private:
  /// False: there are no more. Throws DataError if the record cannot be read as a whole.
  bool read_record() {
    record_.resize(kTfRecordHeader);
    const std::uint64_t offset = bytes_.position();
    const std::size_t count = bytes_.read(record_);
    if (count == 0) return false;
    if (count < kTfRecordHeader) throw DataError("it is cut off");
    const TfRecordHeader header =
        parse_tfrecord_header(std::span<const std::byte>(record_).first<kTfRecordHeader>());
    if (!header.crc_matches && rules_.check) {
      if (offset == 0) refuse_file(path_);
      throw DataError("its length does not match its CRC");
    }
    if (header.data_bytes > max_record_) {
      throw DataError("it has {} bytes, and max_record is {}", header.data_bytes, max_record_);
    }
    record_.resize(kTfRecordFrame + header.data_bytes);
    const auto rest = std::span(record_).subspan(kTfRecordHeader);
    if (bytes_.read(rest) < rest.size()) throw DataError("it is cut off");
    return true;
  }

  ByteStream& bytes_;
  const std::string& path_;
  const RecordRules& rules_;
  const std::uint64_t max_record_;
  std::vector<std::byte> record_;
  bool ended_ = false;
};

class TfRecordStreamFormat final : public StreamFormat {
 public:
  explicit TfRecordStreamFormat(RecordRules rules) : rules_(std::move(rules)) {}

  /// A length may look like the start of a gzip file; its CRC decides.
  std::string_view compression(std::span<const std::byte> front) const noexcept override {
    const bool is_plain = front.size() >= kTfRecordHeader &&
                          parse_tfrecord_header(front.first<kTfRecordHeader>()).crc_matches;
    return is_plain ? "" : compression_by_magic(front);
  }
  std::unique_ptr<SampleStream> open(ByteStream& bytes, const std::string& path,
                                     std::uint64_t max_record) const override {
    return std::make_unique<TfRecordStream>(bytes, path, rules_, max_record);
  }

 private:
  const RecordRules rules_;
};

/// TFRecord files have no file extension of their own; the index files beside them do.
bool is_tfrecord_name(std::string_view name) {
  if (name.ends_with(".idx") || name.ends_with(".index")) return false;
  return std::ranges::any_of(std::array{"-of-", ".tfrec", ".record"}, [&](const char* part) {
    return name.find(part) != std::string_view::npos;
  });
}

/// True for names that belong to no other format: "x.tfrecord", "train-00003-of-01024".
bool is_clearly_tfrecord(std::string_view name) {
  if (name.find(".tfrec") != std::string_view::npos) return true;
  const std::size_t of = name.find("-of-");
  const auto digit = [&](std::size_t at) {
    return at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0;
  };
  return of != std::string_view::npos && of > 0 && digit(of - 1) && digit(of + 4);
}

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  const RecordRules rules(options);
  FileList shards = list_shards(plan, is_tfrecord_name, "TFRecord", "train-00000-of-01024");
  return make_shard_source(plan, std::move(shards), std::make_unique<TfRecordStreamFormat>(rules),
                           std::make_unique<TfRecordFormat>(rules, plan.classes), options);
}

}  // namespace

extern constinit const SourceEntry tfrecord_source{
    .name = "tfrecord",
    .summary = "TFRecord shards of tf.train.Example: a folder, a file, or a list with braces",
    .options = kOptions,
    .make = make,
    .detects = is_clearly_tfrecord,
};

}  // namespace penstock::datasets
