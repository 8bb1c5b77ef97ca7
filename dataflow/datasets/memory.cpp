// SPDX-License-Identifier: Apache-2.0
// The source for a data set held in memory. Before the run it reads the whole set with the source
// for its files, or as much as fits: from an image folder it takes all classes in turn, from other
// sets random samples. Samples keep their index and come in the set's order, so a set that fits
// gives the same batches as its files.
//
// With `pixels` it holds the decoded images at the batch's size. A sample that cannot be read or
// decoded fails when its turn comes, as it would from its file.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "dataflow/datasets/detect_source.h"
#include "dataflow/datasets/image_folder.h"
#include "dataflow/datasets/sample_order.h"
#include "dataflow/datasets/source_over.h"
#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/machine/memory_limit.h"
#include "dataflow/machine/workers.h"
#include "dataflow/source.h"

namespace penstock::datasets {
namespace {

constexpr OptionSpec kOptions[] = {
    {"limit", "1GiB",
     "bytes to hold in memory, at most; never more than half of the available memory"},
    {"pixels", "",
     "hold images decoded by this decoder, such as jpeg:crop=center; default: hold the files"},
    {"from", "auto",
     "source to read from, such as tfrecord, with its options; auto: by file names in --data-dir"},
};

/// One sample in memory, or the error that it caused.
struct Held {
  std::vector<std::byte> bytes;
  std::exception_ptr failure;         // a DataError
  const std::string* file = nullptr;  // one of the source's files
  std::uint64_t index = 0, offset = 0;
  std::int32_t label = -1;
  PixelLayout layout;
  std::vector<ObjectBox> boxes;
};

/// Reads an image folder once: the first file of each class, the second of each, and so on. If the
/// end is cut off, classes stay as balanced as possible.
class ImagesInTurn final : public Source {
 public:
  explicit ImagesInTurn(ImageFiles images) : images_(std::move(images)) {
    std::vector<std::pair<std::size_t, std::size_t>> left;  // of each class: [next, end)
    for (std::size_t begin = 0; const std::size_t end : images_.ends) {
      if (begin < end) left.emplace_back(begin, end);
      begin = end;
    }
    turns_.reserve(images_.files.size());
    while (!left.empty()) {
      for (auto& [next, end] : left) turns_.push_back(static_cast<std::uint32_t>(next++));
      std::erase_if(left, [](const auto& files) { return files.first == files.second; });
    }
  }

  bool next(Sample& sample) override {
    if (taken_ == turns_.size()) return false;
    sample.index = turns_[taken_++];
    sample.label = images_.label(sample.index);
    images_.files.path(sample.index, sample.file);
    return true;
  }
  void load(Sample& sample) const override { read_image_file(sample.file, sample.bytes); }
  SourceFacts facts() const override {
    return {.size = images_.files.size(),
            .size_over_ranks = images_.files.size(),
            .classes = images_.classes(),
            .note = images_.note};
  }

 private:
  const ImageFiles images_;
  std::vector<std::uint32_t> turns_;
  std::size_t taken_ = 0;
};

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MB", 1e-6 * static_cast<double>(bytes));
}

class MemorySource final : public Source {
 public:
  MemorySource(const DataPlan& plan, const Options& options)
      : plan_(plan),
        pixels_(options.text("pixels")),
        limit_(std::min<std::uint64_t>(options.bytes("limit"), available_memory() / 2)),
        from_(source_text(options.text("from"), plan.directory)),
        from_entry_(find_entry(source_table(), from_.name)) {
    if (from_entry_.in_memory) {
      throw ConfigError(
          "the source memory reads another source, but from is '{}'; expected one that reads "
          "files; leave from out",
          options.text("from"));
    }
    // Tries to read in order first, which is fastest on disks.
    if (!hold_all(false) && !in_turn_) hold_all(true);
    if (held_.empty()) {
      throw ConfigError(
          "the source memory holds none of the {} images of '{}': it may take {}, less than the "
          "first image; raise memory:limit, or free memory",
          all_, plan.directory, megabytes(limit_));
    }
    std::ranges::sort(held_, {}, &Held::index);
    order_.emplace(plan, held_.size());
  }

  bool next(Sample& sample) override {
    const std::optional<SampleOrder::Turn> turn = order_->next();
    if (!turn) return false;
    const Held& held = held_[turn->sample];
    sample.label = held.label;
    sample.index = held.index;
    sample.epoch = turn->epoch;
    sample.file = *held.file;
    sample.offset = held.offset;
    sample.lent = held.bytes;
    sample.layout = held.layout;
    sample.boxes = held.boxes;
    if (held.failure) std::rethrow_exception(held.failure);
    return true;
  }

  SourceFacts facts() const override {
    return {.size = order_->size(),
            .size_over_ranks = order_->size_over_ranks(),
            .kind = kind_,
            .classes = classes_,
            .note = note()};
  }

 private:
  std::string note() const {
    std::uint64_t bytes = 0;
    for (const Held& held : held_) bytes += held.bytes.size();
    std::string text = fmt::format("the source memory holds {} of {} images, {}", held_.size(),
                                   all_, megabytes(bytes));
    if (held_.size() < all_) {
      text += fmt::format(" of the {} that it may, {}", megabytes(limit_),
                          in_turn_ ? "from all classes" : "chosen at random");
    }
    return inner_note_.empty() ? text : fmt::format("{}; {}", text, inner_note_);
  }

  /// Opens the whole set once, for any rank.
  std::unique_ptr<Source> open(bool shuffle) const {
    const Options options(from_entry_.name, from_entry_.options, from_);
    if (in_turn_) return std::make_unique<ImagesInTurn>(open_image_folder(plan_, options));
    DataPlan plan = plan_of_whole_set(plan_);
    plan.shuffle = shuffle;
    return from_entry_.make(plan, options);
  }

  /// False: something did not fit.
  bool hold_all(bool shuffle) {
    const std::unique_ptr<Source> inner = open(shuffle);
    held_.clear();
    files_.clear();
    const SourceFacts facts = inner->facts();
    all_ = facts.size;
    classes_ = facts.classes;
    kind_ = pixels_.empty() ? facts.kind : SampleKind::pixels;
    const bool fits = pixels_.empty() ? hold_content(*inner) : hold_pixels(*inner);
    inner_note_ = inner->facts().note;
    return fits;
  }

  void describe(const Sample& sample, Held& held) {
    held.file = &*files_.insert(sample.file).first;
    held.index = sample.index;
    held.offset = sample.offset;
    held.label = sample.label;
    held.layout = sample.layout;
    held.boxes = sample.boxes;
  }

  bool hold_content(Source& inner) {
    std::uint64_t used = 0;
    for (Sample sample;;) {
      plan_.expect_no_stop();
      Held held;
      try {
        if (!inner.next(sample)) return true;
        inner.load(sample);
        const std::span<const std::byte> content = sample.content();
        used += content.size();
        if (used > limit_) return false;
        held.bytes.assign(content.begin(), content.end());
      } catch (const DataError&) {
        held.failure = std::current_exception();
      }
      describe(sample, held);
      held_.push_back(std::move(held));
    }
  }

  bool hold_pixels(Source& inner) {
    if (inner.facts().kind == SampleKind::pixels) {
      throw ConfigError(
          "the source memory was asked to hold the pixels that '{}' decodes, but {} already gives "
          "pixels; leave pixels (decode=raw) out",
          pixels_, from_.name);
    }
    const ComponentText parts = parse_component(pixels_);
    const DecoderEntry& entry = find_entry(decoder_table(), parts.name);
    const Options options(entry.name, entry.options, parts);
    std::vector<std::unique_ptr<Decoder>> decoders;
    for (std::int32_t i = 0; i < plan_.threads; ++i) decoders.push_back(entry.make(options));
    const std::uint64_t most = std::min(limit_ / plan_.image.elements(), all_);
    held_.reserve(most);  // workers keep pointers into it
    std::mutex mutex;
    std::exception_ptr failure;  // mutex protects everything below
    bool fits = true;
    const auto take = [&](Sample& sample) -> Held* {
      const std::lock_guard lock(mutex);
      if (failure) return nullptr;
      if (held_.size() == most) {
        fits = held_.size() == all_;
        return nullptr;
      }
      Held held;
      try {
        if (!inner.next(sample)) return nullptr;
      } catch (const DataError&) {
        held.failure = std::current_exception();
      }
      describe(sample, held);
      held_.push_back(std::move(held));
      return &held_.back();
    };
    run_workers(plan_.threads, [&](std::int32_t worker) {
      try {
        Sample sample;
        while (Held* const held = take(sample)) {
          plan_.expect_no_stop();
          if (!held->failure) {
            decode(*decoders[static_cast<std::size_t>(worker)], inner, sample, *held);
          }
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    });
    if (failure) std::rethrow_exception(failure);
    return fits;
  }

  void decode(Decoder& decoder, const Source& inner, Sample& sample, Held& held) const {
    try {
      inner.load(sample);
      held.label = sample.label;
      held.layout = {plan_.image.width, plan_.image.height, plan_.image.channels};
      held.bytes.resize(plan_.image.elements());
      const ImageView row{held.bytes.data(), plan_.image, DType::u8,
                          std::ptrdiff_t{plan_.image.width} * plan_.image.channels};
      Random random(plan_.seed, 0, held.index);
      decoder.decode(sample, row, random);
    } catch (const DataError&) {
      held.bytes = {};
      held.failure = std::current_exception();
    }
  }

  const DataPlan plan_;
  const std::string pixels_;  // the decoder's text; empty: the content is kept undecoded
  const std::uint64_t limit_;
  const ComponentText from_;
  const SourceEntry& from_entry_;
  const bool in_turn_ = from_entry_.class_folders;
  std::uint64_t all_ = 0;  // samples of the set
  std::int32_t classes_ = 0;
  SampleKind kind_ = SampleKind::encoded;
  std::string inner_note_;
  std::set<std::string> files_;
  std::vector<Held> held_;
  std::optional<SampleOrder> order_;
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  return std::make_unique<MemorySource>(plan, options);
}

}  // namespace

extern constinit const SourceEntry memory_source{
    .name = "memory",
    .summary = "a data set of any format, read into memory before the run as far as it fits",
    .options = kOptions,
    .in_memory = true,
    .make = make,
};

}  // namespace penstock::datasets
