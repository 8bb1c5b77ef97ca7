// SPDX-License-Identifier: Apache-2.0
// WebDataset shards, tar files whose consecutive members form samples: the parser, the source and
// the writer. A shard is indexed once, by its headers and labels; an image is a view of the page
// cache. Compressed shards are streams.
#include "dataflow/datasets/webdataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/datasets/shard_stream.h"
#include "dataflow/datasets/stream_source.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

/// Limit for a label file. JSON in memory takes about twenty times its text.
constexpr std::uint64_t kMaxLabelBytes = 1U << 20;
constexpr std::uint64_t kMaxImageBytes = std::numeric_limits<std::uint32_t>::max();

/// True for "__meta__/x", "__index__": notes of the archive's writer.
bool is_note(std::string_view path) noexcept {
  const std::string_view first = path.substr(0, path.find('/'));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

/// The printable characters of foreign text, for messages.
std::string shown(std::string_view text) {
  std::string printable;
  for (const char c : text.substr(0, 40)) printable += c >= ' ' && c <= '~' ? c : '?';
  return printable;
}

/// The label, or a negative number if the text is no label.
std::int32_t parse_label(std::string_view text) noexcept {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return -1;
  text = text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  std::int32_t label = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
  return error == std::errc() && end == text.data() + text.size() ? label : -1;
}

std::int32_t parse_json_label(std::string_view text, const std::string& key) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return -1;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return -1;
  const auto label = found->get<std::int64_t>();
  const bool fits = label >= 0 && label <= std::numeric_limits<std::int32_t>::max();
  return fits ? static_cast<std::int32_t>(label) : -1;
}

}  // namespace

WebDatasetName split_webdataset_name(std::string_view path) {
  if (is_note(path)) return {};
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', name);
  if (dot == std::string_view::npos || dot == name) return {};
  std::string kind(path.substr(dot + 1));
  for (char& c : kind) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return {path.substr(0, dot), std::move(kind)};
}

bool WebDatasetReader::next(WebDatasetSample& sample, std::vector<std::byte>* image) {
  image_ = image;
  while (next_group(sample)) {
    if (!sample.problem.empty() || image_rank_ < rules_.images.size() || has_label_) {
      judge(sample);
      return true;
    }
    if (passed_over_.empty()) passed_over_ = sample.kinds;
  }
  return false;
}

/// Reads consecutive files that have one key. False: there are no more.
bool WebDatasetReader::next_group(WebDatasetSample& sample) {
  sample = {};
  image_rank_ = rules_.images.size();
  has_label_ = false;
  if (!has_member_ && !ended_) advance();
  if (!failure_.empty()) {
    sample.begin = tar_.begin();
    sample.end = tar_.position();
    sample.problem = std::exchange(failure_, {});
    sample.is_last = true;
    return true;
  }
  if (!has_member_) return false;
  sample.begin = member_.begin;
  const std::string key(split_webdataset_name(member_.name).key);
  try {
    do {
      take(sample);
    } while (advance() && split_webdataset_name(member_.name).key == key);
  } catch (const DataError& error) {  // in the data of a file
    sample.problem = error.what();
    sample.is_last = ended_ = true;
    sample.end = tar_.position();
  }
  const bool whole = image_rank_ < rules_.images.size() && (has_label_ || rules_.label.empty());
  if (!failure_.empty() && !whole) {  // its missing files may be after the damage
    sample.problem = std::exchange(failure_, {});
    sample.is_last = true;
  }
  return true;
}

/// Moves to the next file that may be part of a sample. False: there is none; `failure_` then says
/// why if the tar is damaged.
bool WebDatasetReader::advance() {
  has_member_ = false;
  try {
    while (tar_.next(member_)) {
      if (split_webdataset_name(member_.name).key.empty()) {
        tar_.finish();
        continue;
      }
      return has_member_ = true;
    }
  } catch (const DataError& error) {
    failure_ = error.what();
  }
  ended_ = true;
  return false;
}

/// Adds `member_` to the sample. Throws DataError if its data are truncated.
void WebDatasetReader::take(WebDatasetSample& sample) {
  has_member_ = false;
  const std::string kind = split_webdataset_name(member_.name).kind;
  if (sample.kinds.size() < 200) {
    sample.kinds += (sample.kinds.empty() ? "" : ", ") + shown(kind);
  }
  const auto rank =
      static_cast<std::size_t>(std::ranges::find(rules_.images, kind) - rules_.images.begin());
  if (rank < rules_.images.size() && rank == image_rank_) {
    sample.problem = "it has two files of the kind " + shown(kind);
  }
  if (rank < image_rank_) {
    image_rank_ = rank;
    sample.image_at = member_.data;
    sample.image_bytes = member_.bytes;
    if (image_ != nullptr) {
      image_->resize(member_.bytes);
      tar_.read(*image_);
    }
  } else if (kind == rules_.label && !kind.empty()) {
    if (has_label_) sample.problem = "it has two files of the kind " + shown(kind);
    read_label(sample);
  }
  tar_.finish();
  sample.end = tar_.position();
}

void WebDatasetReader::read_label(WebDatasetSample& sample) {
  has_label_ = true;
  if (member_.bytes > kMaxLabelBytes) {
    sample.problem = "its label is a file of more than a mebibyte";
    return;
  }
  std::string text(member_.bytes, '\0');
  tar_.read(std::as_writable_bytes(std::span(text)));
  const bool is_json = rules_.label == "json" || rules_.label.ends_with(".json");
  sample.label = is_json ? parse_json_label(text, rules_.json_key) : parse_label(text);
  if (sample.label >= 0) return;
  sample.problem = is_json ? "its file of JSON has no whole number '" + rules_.json_key + "'"
                           : "its label is '" + shown(text) + "'; expected a whole number";
}

/// Says what is wrong with a group if the tar is intact.
void WebDatasetReader::judge(WebDatasetSample& sample) const {
  if (rules_.label.empty()) sample.label = 0;
  if (sample.problem.empty()) {
    if (image_rank_ == rules_.images.size()) {
      sample.problem = "it has no image; its files are " + sample.kinds;
    } else if (sample.label < 0) {
      sample.problem =
          "it has no label, a file ." + rules_.label + "; its files are " + sample.kinds;
    } else if (sample.image_bytes == 0) {
      sample.problem = "its image is empty";
    } else if (sample.image_bytes > kMaxImageBytes) {
      sample.problem = "its image has 4 GiB or more";
    }
  }
  if (!sample.problem.empty()) sample.label = -1;
}

namespace {

constexpr OptionSpec kOptions[] = {
    {"images", "jpg;jpeg;png", "file extensions of the image; the first that exists is used"},
    {"label", "cls", "file extension of the label: a number, or json; none: all labels are 0"},
    {"json_key", "label", "key of the label in a json file"},
    kStreamOptions[0],
    kStreamOptions[1],
    kStreamOptions[2],
    kStreamOptions[3],
};

WebDatasetRules parse_rules(const Options& options) {
  WebDatasetRules rules{.images = {},
                        .label = options.text("label") == "none" ? "" : options.text("label"),
                        .json_key = options.text("json_key")};
  const std::string& kinds = options.text("images");
  for (std::size_t begin = 0; begin <= kinds.size();) {
    const std::size_t end = std::min(kinds.find(';', begin), kinds.size());
    if (end > begin) rules.images.push_back(kinds.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& kind : rules.images) {
    if (kind == rules.label) {
      throw ConfigError("webdataset: the kind '" + kind +
                        "' is both in images and in label; keep it in one of them");
    }
  }
  if (rules.images.empty()) {
    throw ConfigError("webdataset: option 'images' is '" + kinds +
                      "'; expected kinds of file, such as jpg;png");
  }
  return rules;
}

[[noreturn]] void refuse_options(const std::string& path, const std::string& problem) {
  throw ConfigError("no sample of '" + path + "' can be used. Of the first one: " + problem +
                    "; expected an image, JPEG or PNG, and a label in each; the files of a sample "
                    "must follow each other in the tar: sort them by name, or state "
                    "source='webdataset:images=jpg;png,label=json,json_key=KEY'");
}

/// Iterates over all samples of a shard. Throws if none of them is whole.
class ShardSamples {
 public:
  ShardSamples(WebDatasetReader reader, const std::string& path)
      : reader_(std::move(reader)), path_(path) {}

  /// As WebDatasetReader's. Throws ConfigError if the file is not a tar, or if no sample is whole.
  bool next(WebDatasetSample& sample, std::vector<std::byte>* image = nullptr) {
    if (!reader_.next(sample, image)) {
      if (!any_ && !reader_.passed_over().empty()) {
        problem_ = "it has neither an image nor a label; its files are " + reader_.passed_over();
      }
      if (!problem_.empty()) refuse_options(path_, problem_);
      return false;
    }
    if (sample.is_last && sample.begin == 0) {
      throw ConfigError("the data file '" + path_ +
                        "' does not begin with a sample: " + sample.problem +
                        "; expected a WebDataset shard, a tar file; check --data-dir");
    }
    if (sample.problem.empty()) problem_.clear();
    if (!any_ && !sample.is_last) problem_ = sample.problem;
    any_ = true;
    return true;
  }

 private:
  WebDatasetReader reader_;
  const std::string& path_;
  std::string problem_;  // the problem of the first sample, until one is whole
  bool any_ = false;
};

class WebDatasetFormat final : public RecordFormat {
 public:
  explicit WebDatasetFormat(WebDatasetRules rules) : rules_(std::move(rules)) {}

  /// The record of a whole sample is its image. That of a damaged one is the whole sample, from
  /// which open() finds the problem.
  void index(const MappedFile& shard, const AddRecord& add) const override {
    constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
    MemoryStream stream(shard.bytes());
    ShardSamples samples(WebDatasetReader(stream, rules_), shard.path());
    for (WebDatasetSample sample; samples.next(sample);) {
      if (sample.problem.empty()) {
        add({sample.image_at, static_cast<std::uint32_t>(sample.image_bytes), sample.label});
        continue;
      }
      const std::uint64_t end = sample.is_last ? shard.bytes().size() : sample.end;
      add({sample.begin, static_cast<std::uint32_t>(std::min(end - sample.begin, kMax)), -1});
    }
  }

  void open(Sample& sample) const override {
    if (sample.label >= 0) return;
    MemoryStream stream(sample.lent);
    WebDatasetReader reader(stream, rules_);
    WebDatasetSample damaged;
    refuse_record(sample, reader.next(damaged) ? damaged.problem : "it has changed");
  }

 private:
  const WebDatasetRules rules_;
};

class WebDatasetStream final : public SampleStream {
 public:
  WebDatasetStream(WebDatasetReader reader, const std::string& path)
      : samples_(std::move(reader), path) {}

  bool next(StreamedSample& sample, bool wants_image) override {
    sample.image.clear();
    if (!samples_.next(found_, wants_image ? &sample.image : nullptr)) return false;
    const bool whole = found_.problem.empty();
    if (!whole) sample.image = {};
    sample.image_bytes = whole ? found_.image_bytes : 0;
    sample.offset = whole ? found_.image_at : found_.begin;
    sample.label = found_.label;
    sample.problem = std::move(found_.problem);
    sample.is_last = found_.is_last;
    return true;
  }

 private:
  ShardSamples samples_;
  WebDatasetSample found_;
};

class WebDatasetStreamFormat final : public StreamFormat {
 public:
  explicit WebDatasetStreamFormat(WebDatasetRules rules) : rules_(std::move(rules)) {}

  std::string_view compression(std::span<const std::byte> front) const noexcept override {
    const std::string_view found = compression_by_magic(front);
    return found == "zlib" ? "" : found;  // a tar may begin like that, with a name
  }
  std::unique_ptr<SampleStream> open(ByteStream& bytes, const std::string& path,
                                     std::uint64_t max_record) const override {
    return std::make_unique<WebDatasetStream>(WebDatasetReader(bytes, rules_, max_record), path);
  }

 private:
  const WebDatasetRules rules_;
};

bool is_tar_name(std::string_view name) {
  return std::ranges::any_of(std::array{".tar", ".tar.gz", ".tgz", ".tar.zst"},
                             [&](const char* ending) { return name.ends_with(ending); });
}

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  WebDatasetRules rules = parse_rules(options);
  FileList shards = list_shards(plan, is_tar_name, "WebDataset", "train-000000.tar");
  auto streamed = std::make_unique<WebDatasetStreamFormat>(rules);
  if (any_is_compressed(shards, *streamed)) {
    return make_stream_source(plan, std::move(shards), std::move(streamed), options);
  }
  return make_record_source(plan, std::move(shards),
                            std::make_unique<WebDatasetFormat>(std::move(rules)));
}

// ---- writer -----------------------------------------------------------------

constexpr std::size_t kBlock = 512;

void append_file(ShardFile& shard, const std::string& name, std::span<const std::byte> content) {
  std::array<char, kBlock> header{};
  const auto put = [&](std::size_t offset, std::string_view text) {
    std::memcpy(header.data() + offset, text.data(), text.size());
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", content.size()));
  put(136, "00000000000");
  put(148, "        ");  // the checksum counts itself as blanks
  put(156, "0");
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  shard.append(std::as_bytes(std::span(header)));
  shard.append(content);
  shard.append_zeros((kBlock - content.size() % kBlock) % kBlock);
}

class WebDatasetWriter final : public ShardedWriter {
 public:
  using ShardedWriter::ShardedWriter;

 private:
  std::string shard_name(std::uint64_t number) const override {
    return fmt::format("train-{:06}.tar", number);
  }
  void write(ShardFile& shard, std::uint64_t sample, std::span<const std::byte> image,
             std::int32_t label) override {
    const std::string key = fmt::format("{:09}", sample), text = std::to_string(label);
    append_file(shard, key + ".jpg", image);
    append_file(shard, key + ".cls", std::as_bytes(std::span(text)));
  }
  void end_shard(ShardFile& shard) override { shard.append_zeros(2 * kBlock); }
};

}  // namespace

extern constinit const SourceEntry webdataset_source{
    .name = "webdataset",
    .summary = "WebDataset shards (tar files): a folder, a file, or a list with braces",
    .options = kOptions,
    .make = make,
    .detects = is_tar_name,
};

extern constinit const DatasetWriterEntry webdataset_dataset_writer{
    .name = "webdataset",
    .summary = "tar files of KEY.jpg and KEY.cls",
    .make = make_writer<WebDatasetWriter>,
};

}  // namespace penstock::datasets
