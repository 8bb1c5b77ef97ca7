// SPDX-License-Identifier: Apache-2.0
// MXNet's .rec files: the parser, the source and the writer. Damage costs only the records that it
// touches: the next record is found by its magic number, or in the .idx file.
#include "dataflow/datasets/recordio.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

constexpr std::uint32_t kMagic = 0xced7230a;
constexpr std::uint64_t kHeadBytes = 8;
constexpr std::uint64_t kImageHeadBytes = 24;

enum class Flag : std::uint8_t { whole, first, middle, last };

struct Part {
  Flag flag{};
  std::uint32_t bytes = 0;  ///< of data

  std::uint64_t padded() const noexcept { return kHeadBytes + (std::uint64_t{bytes} + 3) / 4 * 4; }
  bool begins() const noexcept { return flag == Flag::whole || flag == Flag::first; }
  bool ends() const noexcept { return flag == Flag::whole || flag == Flag::last; }
};

[[noreturn]] void refuse(std::uint64_t offset, const std::string& problem) {
  throw DataError((offset == 0 ? "" : "its part at byte " + std::to_string(offset) + ": ") +
                  problem);
}

/// The part at `offset` of `bytes`. Offsets in messages are relative to `begin`.
Part part_at(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t begin) {
  const std::uint64_t left = bytes.size() - std::min<std::uint64_t>(offset, bytes.size());
  if (left < kHeadBytes) {
    refuse(offset - begin, "the file ends after " + std::to_string(left) + " bytes");
  }
  if (values::value_at<std::uint32_t>(bytes, offset) != kMagic) {
    refuse(offset - begin, "it does not begin with the magic number");
  }
  const auto word = values::value_at<std::uint32_t>(bytes, offset + 4);
  const Part part{static_cast<Flag>(word >> 29), word & ((1U << 29) - 1)};
  if (part.flag > Flag::last) {
    refuse(offset - begin, "its flag is " + std::to_string(word >> 29) + "; expected 0 to 3");
  }
  if (part.begins() != (offset == begin)) {
    refuse(offset - begin, part.begins() ? "another record begins before this one ends"
                                         : "it continues a record that has no beginning");
  }
  if (part.padded() > left) {
    refuse(offset - begin, "it should have " + std::to_string(part.bytes) + " bytes, and " +
                               std::to_string(left - kHeadBytes) + " are left");
  }
  return part;
}

std::int32_t as_label(float value) {
  // A whole float below 2^31 fits; NaN fails both checks.
  if (!(value >= 0 && value < 2147483648.0F) || std::trunc(value) != value) {
    throw DataError("its label is " + std::to_string(value) +
                    ", which is not the number of a class");
  }
  return static_cast<std::int32_t>(value);
}

}  // namespace

std::uint64_t recordio_end(std::span<const std::byte> file, std::uint64_t offset) {
  std::uint64_t at = offset;
  for (Part part; !(at > offset && part.ends()); at += part.padded()) {
    part = part_at(file, at, offset);
  }
  return at;
}

bool recordio_begins(std::span<const std::byte> file, std::uint64_t offset) noexcept {
  if (offset > file.size() || file.size() - offset < kHeadBytes) return false;
  const std::uint32_t flag = values::value_at<std::uint32_t>(file, offset + 4) >> 29;
  return values::value_at<std::uint32_t>(file, offset) == kMagic && flag <= 1;
}

std::uint64_t find_recordio(std::span<const std::byte> file, std::uint64_t offset) noexcept {
  for (; offset + kHeadBytes <= file.size(); offset += 4) {
    if (recordio_begins(file, offset)) return offset;
  }
  return file.size();
}

std::span<const std::byte> recordio_data(std::span<const std::byte> record,
                                         std::vector<std::byte>& joined) {
  Part part = part_at(record, 0, 0);
  if (part.flag == Flag::whole) return record.subspan(kHeadBytes, part.bytes);
  joined.clear();
  for (std::uint64_t at = 0;; part = part_at(record, at, 0)) {
    const std::byte* const data = record.data() + at + kHeadBytes;
    joined.insert(joined.end(), data, data + part.bytes);
    if (part.ends()) return joined;
    const auto* const magic = reinterpret_cast<const std::byte*>(&kMagic);
    joined.insert(joined.end(), magic, magic + sizeof kMagic);
    at += part.padded();
  }
}

PackedImage parse_packed_image(std::span<const std::byte> data) {
  if (data.size() < kImageHeadBytes) {
    throw DataError("it has " + std::to_string(data.size()) +
                    " bytes, fewer than the head of an image");
  }
  const auto flag = values::value_at<std::uint32_t>(data, 0);
  const std::uint64_t image_at = kImageHeadBytes + std::uint64_t{flag} * sizeof(float);
  if (image_at >= data.size()) {
    throw DataError(flag == 0 ? std::string("it has no image")
                              : "it should have " + std::to_string(flag) +
                                    " labels before its image, and has " +
                                    std::to_string(data.size() - kImageHeadBytes) + " bytes");
  }
  const auto label = values::value_at<float>(data, flag == 0 ? 4 : kImageHeadBytes);
  return {as_label(label), std::max(flag, 1U), data.subspan(image_at)};
}

std::vector<std::uint64_t> parse_recordio_index(std::string_view text) {
  std::vector<std::uint64_t> offsets;
  std::uint64_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const std::string_view digits = line.substr(std::min(line.find('\t'), line.size()));
    const char* const last = digits.data() + digits.size();
    std::uint64_t offset = 0;
    std::from_chars_result parsed{last, std::errc::invalid_argument};
    if (!digits.empty()) parsed = std::from_chars(digits.data() + 1, last, offset);
    if (parsed.ec != std::errc() || parsed.ptr != last || offset % 4 != 0) {
      throw DataError("line " + std::to_string(number) +
                      " is no key, tab and offset that is a multiple of 4");
    }
    offsets.push_back(offset);
  }
  std::ranges::sort(offsets);
  if (const auto twice = std::ranges::adjacent_find(offsets); twice != offsets.end()) {
    throw DataError("offset " + std::to_string(*twice) + " is there twice");
  }
  return offsets;
}

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

  void index(const MappedFile& shard, const AddRecord& add) const override {
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
  void walk(const MappedFile& shard, const AddRecord& add) const {
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

  void look_up(const MappedFile& shard, const AddRecord& add) const {
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
  const bool beside =
      parse_choice(options.text("index"), kIndexValues, "recordio: option 'index'") == 1;
  return make_record_source(plan, list_shards(plan, is_recordio, "RecordIO", "train.rec"),
                            std::make_unique<Recordio>(beside));
}

// ---- writer -----------------------------------------------------------------

void append_part(ShardFile& shard, unsigned kind, std::span<const std::byte> data) {
  shard.append_number(kMagic);
  shard.append_number(static_cast<std::uint32_t>(kind << 29 | data.size()));
  shard.append(data);
  shard.append_zeros((4 - data.size() % 4) % 4);
}

class RecordIoWriter final : public ShardedWriter {
 public:
  using ShardedWriter::ShardedWriter;

 private:
  std::string stem(std::uint64_t number) const {
    return plan_.shards == 1 ? "train" : fmt::format("train-{:05}", number);
  }
  std::string shard_name(std::uint64_t number) const override { return stem(number) + ".rec"; }

  void write(ShardFile& shard, std::uint64_t sample, std::span<const std::byte> image,
             std::int32_t label) override {
    constexpr std::size_t kMostBytes = (std::size_t{1} << 29) - 1;
    index_ += fmt::format("{}\t{}\n", sample, shard.size());
    const std::uint64_t ids[] = {sample, 0};
    const std::uint32_t head[] = {0, std::bit_cast<std::uint32_t>(static_cast<float>(label))};
    data_.resize(sizeof(head) + sizeof(ids) + image.size());
    std::memcpy(data_.data(), head, sizeof(head));
    std::memcpy(data_.data() + sizeof(head), ids, sizeof(ids));
    std::memcpy(data_.data() + sizeof(head) + sizeof(ids), image.data(), image.size());
    if (data_.size() > kMostBytes) {
      throw ConfigError(
          fmt::format("sample {} has {} bytes, and RecordIO holds at most {}; choose "
                      "another format",
                      sample, data_.size(), kMostBytes));
    }
    append_record(shard);
  }
  /// Cuts the data at each magic number where a part could begin, and leaves that out.
  void append_record(ShardFile& shard) {
    const std::span<const std::byte> data(data_);
    std::size_t begin = 0;
    unsigned kind = 0;
    for (std::size_t at = 0; at + sizeof kMagic <= data.size(); at += sizeof kMagic) {
      if (values::value_at<std::uint32_t>(data, at) != kMagic) continue;
      append_part(shard, kind == 0 ? 1 : 2, data.subspan(begin, at - begin));
      begin = at + sizeof kMagic;
      kind = 3;
    }
    append_part(shard, kind, data.subspan(begin));
  }
  void end_shard(ShardFile&) override {
    ShardFile index(plan_.directory + "/" + stem(shards_++) + ".idx");
    index.append(index_);
    index.close();
    index_.clear();
  }

  std::vector<std::byte> data_;
  std::string index_;
  std::uint64_t shards_ = 0;
};

}  // namespace

extern constinit const SourceEntry recordio_source{
    .name = "recordio",
    .summary = "MXNet RecordIO: .rec files of labelled images",
    .options = kOptions,
    .make = make,
    .detects = is_recordio,
};

extern constinit const DatasetWriterEntry recordio_dataset_writer{
    .name = "recordio",
    .summary = "MXNet RecordIO with an index file",
    .make = make_writer<RecordIoWriter>,
};

}  // namespace penstock::datasets
