// SPDX-License-Identifier: Apache-2.0
// The source for MXNet's .rec files. Damage costs only the records that it touches: the next record
// is found by its magic number, or in the .idx file.
#include "dataflow/datasets/recordio.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <string>

#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

constexpr OptionValue kIndexValues[] = {
    {"walk", "read the length of every record in the .rec file"},
    {"beside", "use the .idx file beside each .rec file, and check it"},
};

constexpr OptionSpec kOptions[] = {
    {"index", "walk", "how to find the records", kIndexValues},
};

class Recordio final : public RecordFormat {
 public:
  explicit Recordio(bool beside) : beside_(beside) {}

  void index(const MappedFile& shard,
             const std::function<void(const Record&)>& add) const override {
    if (beside_) {
      look_up(shard, add);
    } else {
      walk(shard, add);
    }
  }

  void open(Sample& sample) const override {
    try {
      if (recordio_end(sample.lent, 0) != sample.lent.size()) {
        throw DataError("it ends before the next record begins");
      }
      const std::span<const std::byte> data = recordio_data(sample.lent, sample.bytes);
      const std::span<const std::byte> image = parse_packed_image(data).image;
      if (data.data() == sample.bytes.data()) {
        sample.bytes.erase(sample.bytes.begin(), sample.bytes.end() - std::ssize(image));
        sample.lent = {};
      } else {
        sample.lent = image;
      }
    } catch (const DataError& error) {
      refuse_record(sample, error.what());
    }
  }

  std::string note() const override {
    const std::uint64_t records = of_several_labels_;
    if (records == 0) return {};
    return std::to_string(records) + " records have several labels, of which the first is taken";
  }

 private:
  void walk(const MappedFile& shard, const std::function<void(const Record&)>& add) const {
    const std::span<const std::byte> file = shard.bytes();
    bool found = file.empty();
    for (std::uint64_t at = 0, end = 0; at < file.size(); at = end) {
      try {
        end = recordio_end(file, at);
        found = true;
        add(whole_record(file, at, end));
      } catch (const DataError&) {
        end = find_recordio(file, at + 4);
        add(damaged_record(at, end));
      }
    }
    if (found) return;
    throw ConfigError("the data file '" + shard.path() +
                      "' has no RecordIO record; expected a .rec file of MXNet; check --data-dir");
  }

  void look_up(const MappedFile& shard, const std::function<void(const Record&)>& add) const {
    const MappedFile index(std::filesystem::path(shard.path()).replace_extension(".idx").native());
    const auto disagree = [&](const std::string& problem) {
      throw ConfigError("the index '" + index.path() + "' does not agree with '" + shard.path() +
                        "': " + problem +
                        "; expected a line for each record; pass recordio:index=walk, or write "
                        "the index again");
    };
    std::vector<std::uint64_t> offsets;
    try {
      offsets = parse_recordio_index(
          {reinterpret_cast<const char*>(index.bytes().data()), index.bytes().size()});
    } catch (const DataError& error) {
      disagree(error.what());
    }
    const std::span<const std::byte> file = shard.bytes();
    if (file.empty() != offsets.empty()) disagree("one of them is empty");
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const std::uint64_t at = offsets[i];
      if (i == 0 && at != 0) disagree("it lacks the record at byte 0");
      if (!recordio_begins(file, at)) disagree("no record begins at byte " + std::to_string(at));
      const std::uint64_t next = i + 1 < offsets.size()
                                     ? std::min<std::uint64_t>(offsets[i + 1], file.size())
                                     : file.size();
      try {
        const std::uint64_t end = recordio_end(file.first(next), at);
        if (end < next && recordio_begins(file, end)) {
          disagree("it lacks the record at byte " + std::to_string(end));
        }
        add(end == next ? whole_record(file, at, end) : damaged_record(at, next));
      } catch (const DataError&) {
        add(damaged_record(at, next));
      }
    }
  }

  static Record damaged_record(std::uint64_t begin, std::uint64_t end) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
    return {begin, static_cast<std::uint32_t>(std::min(end - begin, kMost)), -1};
  }

  Record whole_record(std::span<const std::byte> file, std::uint64_t begin,
                      std::uint64_t end) const {
    Record record = damaged_record(begin, end);
    if (record.bytes != end - begin) return record;
    std::vector<std::byte> joined;
    try {
      const PackedImage packed =
          parse_packed_image(recordio_data(file.subspan(begin, record.bytes), joined));
      record.label = packed.label;
      if (packed.labels > 1) ++of_several_labels_;
    } catch (const DataError&) {
      record.label = -1;  // open() says why
    }
    return record;
  }

  const bool beside_;
  mutable std::atomic<std::uint64_t> of_several_labels_{0};
};

bool is_recordio(std::string_view name) { return name.ends_with(".rec"); }

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  const std::string& index = options.text("index");
  if (index != "walk" && index != "beside") {
    throw ConfigError("recordio: option 'index' is '" + index + "'; expected walk or beside");
  }
  return make_record_source(plan, list_shards(plan, is_recordio, "RecordIO", "train.rec"),
                            std::make_unique<Recordio>(index == "beside"));
}

}  // namespace

extern constinit const SourceEntry recordio_source{
    .name = "recordio",
    .summary = "MXNet RecordIO: .rec files of labelled images",
    .options = kOptions,
    .make = make,
};

}  // namespace penstock::datasets
