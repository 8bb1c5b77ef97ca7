// SPDX-License-Identifier: Apache-2.0
// An image folder that lies in memory: all of it is read before the run, or as much as fits, taken
// from all classes in turn. Samples keep their places in the folder's listing and come in the
// folder's order, so that a set that fits gives the batches that its files would give.
//
// With `pixels` it holds what a decoder makes of each image at the batch's size. A file that cannot
// be read or decoded fails when its turn comes, as it would have from the folder.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <utility>

#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/image_files.h"
#include "dataflow/memory_limit.h"
#include "dataflow/sample_order.h"
#include "dataflow/source.h"
#include "dataflow/workers.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"limit", "1GiB", "hold at most so much, and at most half of the memory that is available"},
    {"pixels", "", "hold what this decoder makes of an image, such as jpeg:crop=center"},
};

/// One image in memory, or why it is not.
struct Held {
  std::vector<std::byte> bytes;
  std::exception_ptr failure;  // a DataError
  std::uint32_t index = 0;     // of the file
};

/// Indices of all files: the first of each class, the second of each, and so on. Whatever is cut
/// off at the end, classes are represented as evenly as they can be.
std::vector<std::uint32_t> take_turns(const std::vector<std::int32_t>& labels) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> places;  // rank within its class, index
  places.reserve(labels.size());
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    rank = i > 0 && labels[i] == labels[i - 1] ? rank + 1 : 0;
    places.emplace_back(rank, static_cast<std::uint32_t>(i));
  }
  std::sort(places.begin(), places.end());
  std::vector<std::uint32_t> order;
  order.reserve(places.size());
  for (const auto& place : places) order.push_back(place.second);
  return order;
}

std::string megabytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", 1e-6 * static_cast<double>(bytes));
  return text;
}

class MemorySource final : public Source {
 public:
  MemorySource(const DataPlan& plan, const Options& options)
      : images_(list_image_files(plan.directory, plan.classes)),
        limit_(std::min<std::uint64_t>(options.bytes("limit"), available_memory() / 2)) {
    if (options.text("pixels").empty()) {
      hold_files();
    } else {
      hold_pixels(plan, options.text("pixels"));
    }
    if (held_.empty()) {
      throw ConfigError("the source memory holds none of the " +
                        std::to_string(images_.files.size()) + " images of '" + plan.directory +
                        "': it may take " + megabytes(limit_) +
                        ", less than the first image; raise memory:limit, or free memory");
    }
    std::sort(held_.begin(), held_.end(),
              [](const Held& a, const Held& b) { return a.index < b.index; });
    order_.emplace(plan, held_.size());
  }

  bool next(Sample& sample) override {
    const std::optional<SampleOrder::Turn> turn = order_->next();
    if (!turn) return false;
    const Held& held = held_[turn->sample];
    sample.label = images_.labels[held.index];
    sample.index = held.index;
    sample.epoch = turn->epoch;
    sample.file = images_.files.path(held.index);
    sample.offset = 0;
    sample.lent = held.bytes;
    if (held.failure) std::rethrow_exception(held.failure);
    return true;
  }

  std::uint64_t size() const noexcept override { return order_->size(); }
  std::int32_t classes() const noexcept override { return images_.classes; }

  std::string note() const override {
    std::uint64_t bytes = 0;
    for (const Held& held : held_) bytes += held.bytes.size();
    const std::size_t all = images_.files.size();
    return "the source memory holds " + std::to_string(held_.size()) + " of " +
           std::to_string(all) + " images, " + megabytes(bytes) +
           (held_.size() < all ? " of the " + megabytes(limit_) + " that it may, from all classes"
                               : "");
  }

 private:
  void hold_files() {
    std::uint64_t used = 0;
    for (const std::uint32_t index : take_turns(images_.labels)) {
      Held held{.bytes = {}, .failure = {}, .index = index};
      try {
        read_image_file(images_.files.path(index), held.bytes);
      } catch (const DataError&) {
        held.bytes.clear();
        held.failure = std::current_exception();
      }
      used += held.bytes.size();
      if (used > limit_) return;
      held_.push_back(std::move(held));
    }
  }

  void hold_pixels(const DataPlan& plan, const std::string& text) {
    const ComponentText parts = parse_component(text);
    const DecoderEntry& entry = find_entry(decoder_table(), parts.name);
    const Options options(entry.name, entry.options, parts);
    const std::vector<std::uint32_t> turns = take_turns(images_.labels);
    held_.resize(std::min<std::size_t>(turns.size(), limit_ / plan.image.elements()));
    for (std::size_t i = 0; i < held_.size(); ++i) held_[i].index = turns[i];
    std::vector<std::unique_ptr<Decoder>> decoders;
    for (std::int32_t i = 0; i < plan.threads; ++i) decoders.push_back(entry.make(options));
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;  // under mutex
    run_workers(plan.threads, [&](std::int32_t worker) {
      try {
        Decoder& decoder = *decoders[static_cast<std::size_t>(worker)];
        Sample sample;
        for (std::size_t i = next++; i < held_.size(); i = next++) {
          decode(decoder, plan, sample, held_[i]);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    });
    if (failure) std::rethrow_exception(failure);
  }

  void decode(Decoder& decoder, const DataPlan& plan, Sample& sample, Held& held) const {
    try {
      const char* const path = images_.files.path(held.index);
      sample.index = held.index;
      sample.file = path;
      read_image_file(path, sample.bytes);
      held.bytes.resize(plan.image.elements());
      const ImageView row{held.bytes.data(), plan.image, DType::u8,
                          std::ptrdiff_t{plan.image.width} * plan.image.channels};
      Random random(plan.seed, 0, held.index);
      decoder.decode(sample, row, random);
    } catch (const DataError&) {
      held.bytes = {};
      held.failure = std::current_exception();
    }
  }

  const ImageFiles images_;
  const std::uint64_t limit_;
  std::vector<Held> held_;
  std::optional<SampleOrder> order_;
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  return std::make_unique<MemorySource>(plan, options);
}

}  // namespace

extern constinit const SourceEntry memory_source{
    .name = "memory",
    .summary = "an image folder that is read into memory before the run, as far as it fits",
    .options = kOptions,
    .make = make,
};

}  // namespace penstock
