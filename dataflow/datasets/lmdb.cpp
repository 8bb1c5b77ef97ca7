// SPDX-License-Identifier: Apache-2.0
// LMDB databases of images: Caffe's, whose values are Datum messages, and those of tensorpack's
// LMDBSerializer. Values are views of the mapped file. Indexing looks into each value for its
// label.
//
// The structures are those of libraries/liblmdb/mdb.c of LMDB 0.9: MDB_page, MDB_meta, MDB_db,
// MDB_node.
#include "dataflow/datasets/lmdb.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dataflow/datasets/datapoint.h"
#include "dataflow/datasets/protobuf.h"
#include "dataflow/datasets/record_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "dataflow/values/value_at.h"

namespace penstock::datasets {
namespace {

constexpr std::uint32_t kMagic = 0xbeefc0de;
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kHeader = 16;     ///< of a page
constexpr std::uint64_t kNodeHeader = 8;  ///< of an entry in a page
constexpr std::uint64_t kNoPage = ~std::uint64_t{0};
constexpr int kMaxDepth = 32;  ///< LMDB's own limit for a cursor

enum PageFlag : std::uint16_t { kBranch = 0x01, kLeaf = 0x02, kOverflow = 0x04, kMeta = 0x08 };
enum NodeFlag : std::uint16_t { kBig = 0x01, kSubTree = 0x02, kDuplicates = 0x04 };

[[noreturn]] void refuse(const std::string& problem) {
  throw DataError(
      "an LMDB file that cannot be read: {}; expected a database of LMDB 0.9 with one value for "
      "each key",
      problem);
}

class Tree {
 public:
  Tree(std::span<const std::byte> file, const std::function<bool(const LmdbEntry&)>& found,
       const std::function<void(std::uint64_t)>& damaged)
      : file_(file), found_(found), damaged_(damaged) {}

  void read() {
    choose_meta();
    if (root_ == kNoPage) return;
    pages_left_ = file_.size() / page_bytes_ + 1;
    visit(root_, 1);
  }

 private:
  std::uint64_t number(std::uint64_t at, std::size_t width) const {
    return values::number_of(file_.subspan(static_cast<std::size_t>(at), width));
  }
  bool lies_within(std::uint64_t at, std::uint64_t count) const noexcept {
    return at <= file_.size() && count <= file_.size() - at;
  }
  /// The offset of a page, if the file has it.
  std::optional<std::uint64_t> page(std::uint64_t page_number) const noexcept {
    if (page_number >= file_.size() / page_bytes_) return std::nullopt;
    return page_number * page_bytes_;
  }

  /// Chooses the younger of the two valid meta pages.
  void choose_meta() {
    constexpr std::uint64_t kMetaBytes = 136;
    std::optional<std::uint64_t> best;
    if (!lies_within(0, kHeader + kMetaBytes)) refuse(fmt::format("it has {} bytes", file_.size()));
    // The first page stores the page size, and so the offset of the second. If it is damaged,
    // assume pages of 4 KiB.
    const std::uint64_t first_size = number(kHeader + 24, 4);
    const bool plausible = number(kHeader, 4) == kMagic && std::has_single_bit(first_size) &&
                           first_size >= 256 && first_size <= 65536;
    for (const std::uint64_t at : {std::uint64_t{0}, plausible ? first_size : 4096}) {
      const std::uint64_t meta = at + kHeader;
      if (!lies_within(meta, kMetaBytes) || number(meta, 4) != kMagic) continue;
      if (const std::uint64_t version = number(meta + 4, 4); version != kVersion) {
        refuse(fmt::format("it has data version {}", version));
      }
      if (!best || number(meta + 128, 8) > number(*best + 128, 8)) best = meta;
    }
    if (!best) refuse("it has no page of LMDB at its beginning");
    page_bytes_ = number(*best + 24, 4);
    if (!std::has_single_bit(page_bytes_) || page_bytes_ < 256 || page_bytes_ > 65536) {
      refuse(fmt::format("its pages have {} bytes", page_bytes_));
    }
    if (number(*best + 72 + 4, 2) & kDuplicates) refuse("its keys have several values each");
    root_ = number(*best + 112, 8);
  }

  /// False: no more entries are wanted.
  bool visit(std::uint64_t page_number, int depth) {
    const std::optional<std::uint64_t> begin = page(page_number);
    if (pages_left_ == 0 || depth > kMaxDepth || !begin) {
      damaged_(begin.value_or(0));
      return true;
    }
    --pages_left_;
    const std::uint64_t flags = number(*begin + 10, 2), lower = number(*begin + 12, 2);
    const bool branch = (flags & 0x6f) == kBranch, leaf = (flags & 0x6f) == kLeaf;
    if ((!branch && !leaf) || number(*begin, 8) != page_number || lower < kHeader ||
        lower > page_bytes_) {
      damaged_(*begin);
      return true;
    }
    for (std::uint64_t at = kHeader; at + 2 <= lower; at += 2) {
      const std::uint64_t node = number(*begin + at, 2);
      if (node < lower || node + kNodeHeader > page_bytes_) {
        damaged_(*begin + at);
      } else if (!(branch ? descend(*begin + node, depth) : visit_entry(*begin, node))) {
        return false;
      }
    }
    return true;
  }

  bool descend(std::uint64_t node, int depth) {
    return visit(number(node, 4) | number(node + 4, 2) << 32, depth + 1);
  }

  bool visit_entry(std::uint64_t begin, std::uint64_t node) {
    const std::uint64_t at = begin + node;
    const std::uint64_t value_bytes = number(at, 4), flags = number(at + 4, 2),
                        key_bytes = number(at + 6, 2);
    const std::uint64_t room = page_bytes_ - node - kNodeHeader;
    const std::uint64_t inside = (flags & kBig) != 0 ? 8 : value_bytes;
    if (key_bytes > room || inside > room - key_bytes || (flags & ~std::uint64_t{kBig}) != 0) {
      damaged_(at);
      return true;
    }
    std::uint64_t value = at + kNodeHeader + key_bytes;
    if ((flags & kBig) != 0) {
      const std::optional<std::uint64_t> overflow = page(number(value, 8));
      if (!overflow || number(*overflow, 8) != number(value, 8) ||
          (number(*overflow + 10, 2) & kOverflow) == 0 ||
          !lies_within(*overflow + kHeader, value_bytes)) {
        damaged_(at);
        return true;
      }
      value = *overflow + kHeader;
    }
    return found_(
        {file_.subspan(static_cast<std::size_t>(at + kNodeHeader),
                       static_cast<std::size_t>(key_bytes)),
         file_.subspan(static_cast<std::size_t>(value), static_cast<std::size_t>(value_bytes))});
  }

  const std::span<const std::byte> file_;
  const std::function<bool(const LmdbEntry&)>& found_;
  const std::function<void(std::uint64_t)>& damaged_;
  std::uint64_t page_bytes_ = 4096, root_ = kNoPage;
  std::uint64_t pages_left_ = 0;  // a tree without cycles visits no more pages
};

void read_fields(protozero::pbf_reader message, Datum& datum) {
  constexpr auto kNumber = protozero::pbf_wire_type::varint;
  while (message.next()) {
    const protozero::pbf_tag_type field = message.tag();
    const bool is_number = message.wire_type() == kNumber;
    if ((field <= 3 || field == 5 || field == 7) && !is_number) {
      throw DataError("a Datum whose field {} is no number", field);
    }
    if (field == 4 && !has_bytes(message)) throw DataError("a Datum whose data are no bytes");
    if (field == 4) {
      datum.data = bytes_of(message.get_view());
      continue;
    }
    if (!is_number) message.skip();
    const std::uint64_t number = is_number ? message.get_uint64() : 0;
    if (field == 1) datum.channels = static_cast<std::int32_t>(number);
    if (field == 2) datum.height = static_cast<std::int32_t>(number);
    if (field == 3) datum.width = static_cast<std::int32_t>(number);
    if (field == 5) datum.label = static_cast<std::int32_t>(number);
    if (field == 6) datum.has_floats = true;
    if (field == 7) datum.encoded = number != 0;
  }
}

constexpr OptionSpec kOptions[] = {
    {"format", "auto",
     "format of values: datum (Caffe), datapoint (tensorpack) or auto (as the first value)"},
    {"channels", "bgr", "order of colours in raw pixels: bgr (as in OpenCV) or rgb"},
};

enum class Format : std::uint8_t { datum, datapoint };

StoredImage image_of_datum(std::span<const std::byte> value, bool bgr) {
  const Datum datum = parse_datum(value);
  StoredImage image{.content = datum.data, .label = class_of(datum.label)};
  if (datum.has_floats) throw DataError("a Datum of floats; expected bytes");
  if (datum.encoded) return image;
  image.layout = make_layout(datum.width, datum.height, datum.channels, datum.data.size());
  image.layout.planar = true;
  image.layout.bgr = bgr;
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

  void index(const MappedFile& shard, const AddRecord& add) const override {
    const auto found = [&](const LmdbEntry& entry) {
      if (is_bookkeeping(entry)) return true;
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
      throw ConfigError("the data file '{}' is {}", shard.path(), error.what());
    }
  }

  void open(Sample& sample) const override {
    if (sample.lent.empty()) refuse_record(sample, "it has no value, or the database is damaged");
    open_stored_image(sample, kind_, [this](std::span<const std::byte> value) {
      return parse(format_, value, bgr_);
    });
  }

  /// True for what writers store beside the samples, such as tensorpack's list of keys, `__keys__`,
  /// and other converters' `__len__` and `num-samples`.
  static bool is_bookkeeping(const LmdbEntry& entry) {
    const std::string_view key = values::text_of(entry.key);
    constexpr std::string_view kKeys[] = {"num-samples", "num_samples", "length", "len", "keys"};
    return (key.size() > 4 && key.starts_with("__") && key.ends_with("__")) ||
           std::ranges::find(kKeys, key) != std::end(kKeys);
  }

 private:
  const Format format_;
  const bool bgr_;
  const SampleKind kind_;
};

bool is_lmdb(std::string_view name) {
  return name.ends_with(".lmdb") || (name.ends_with(".mdb") && name != "lock.mdb");
}

/// Finds the format from the first readable image.
std::unique_ptr<RecordFormat> probe(const MappedFile& file, const Options& options) {
  const bool bgr = options.choice("channels", {{"bgr"}, {"rgb"}}) == 0;
  const std::size_t choice = options.choice("format", {{"datum"}, {"datapoint"}, {"auto"}});
  std::unique_ptr<RecordFormat> result;
  std::string problem = "an LMDB file without values";
  int tries = 100;
  const auto found = [&](const LmdbEntry& entry) {
    if (ImageDatabase::is_bookkeeping(entry)) return true;
    try {
      const Format format = choice < 2                         ? static_cast<Format>(choice)
                            : begins_as_datapoint(entry.value) ? Format::datapoint
                                                               : Format::datum;
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
  throw ConfigError(
      "the data file '{}' cannot be used; its last try was {}; state lmdb:format, or check "
      "--data-dir",
      file.path(), problem);
}

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  FileList files = list_shards(plan, is_lmdb, "LMDB", "data.mdb or train.lmdb");
  std::unique_ptr<RecordFormat> format = probe(MappedFile(files.path(0)), options);
  return make_record_source(plan, std::move(files), std::move(format));
}

}  // namespace

void read_lmdb(std::span<const std::byte> file, const std::function<bool(const LmdbEntry&)>& found,
               const std::function<void(std::uint64_t)>& damaged) {
  Tree(file, found, damaged).read();
}

Datum parse_datum(std::span<const std::byte> message) {
  Datum datum;
  read_message("a Datum", [&] { read_fields(protozero::pbf_reader(view_of(message)), datum); });
  return datum;
}

extern constinit const SourceEntry lmdb_source{
    .name = "lmdb",
    .summary = "LMDB databases of Caffe (Datum) and of tensorpack (LMDBSerializer)",
    .options = kOptions,
    .make = make,
    .detects = is_lmdb,
};

}  // namespace penstock::datasets
