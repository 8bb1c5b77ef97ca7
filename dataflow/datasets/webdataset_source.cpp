// SPDX-License-Identifier: Apache-2.0
// The source of WebDataset shards. A shard is indexed once, by its headers and labels; an image is
// a view of the page cache. Compressed shards are streams.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/datasets/shard_list.h"
#include "dataflow/datasets/shard_stream.h"
#include "dataflow/datasets/stream_source.h"
#include "dataflow/datasets/webdataset.h"
#include "dataflow/error.h"

namespace penstock::datasets {
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
  std::istringstream kinds(options.text("images"));
  for (std::string kind; std::getline(kinds, kind, ';');) {
    if (!kind.empty()) rules.images.push_back(kind);
  }
  if (std::ranges::find(rules.images, rules.label) != rules.images.end()) {
    throw ConfigError(
        "webdataset: the kind '{}' is both in images and in label; keep it in one of them",
        rules.label);
  }
  if (rules.images.empty()) {
    throw ConfigError(
        "webdataset: option 'images' is '{}'; expected kinds of file, such as jpg;png",
        options.text("images"));
  }
  return rules;
}

[[noreturn]] void refuse_options(const std::string& path, const std::string& problem) {
  throw ConfigError(
      "no sample of '{}' can be used. Of the first one: {}; expected an image, JPEG or PNG, and a "
      "label in each; the files of a sample must follow each other in the tar: sort them by name, "
      "or state source='webdataset:images=jpg;png,label=json,json_key=KEY'",
      path, problem);
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
      throw ConfigError(
          "the data file '{}' does not begin with a sample: {}; expected a WebDataset shard, a tar "
          "file; check --data-dir",
          path_, sample.problem);
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
  const WebDatasetRules rules = parse_rules(options);
  FileList shards = list_shards(plan, is_tar_name, "WebDataset", "train-000000.tar");
  return make_shard_source(plan, std::move(shards), std::make_unique<WebDatasetStreamFormat>(rules),
                           std::make_unique<WebDatasetFormat>(rules), options);
}

}  // namespace

extern constinit const SourceEntry webdataset_source{
    .name = "webdataset",
    .summary = "WebDataset shards (tar files): a folder, a file, or a list with braces",
    .options = kOptions,
    .make = make,
    .detects = is_tar_name,
};

}  // namespace penstock::datasets
