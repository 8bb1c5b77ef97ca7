// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/source_over.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

/// By default it forwards to the inner source.
class SourceOver : public Source {
 public:
  explicit SourceOver(std::unique_ptr<Source> inner) : inner_(std::move(inner)) {}

  SourceFacts facts() const override { return inner_->facts(); }

 protected:
  const std::unique_ptr<Source> inner_;
};

// ---- other ways to read ------------------------------------------------------

class FileReads final : public SourceOver {
 public:
  FileReads(std::unique_ptr<Source> inner, std::unique_ptr<FileReader> reader, bool whole_files)
      : SourceOver(std::move(inner)), reader_(std::move(reader)), whole_files_(whole_files) {}

  bool next(Sample& sample) override { return inner_->next(sample); }
  void load(Sample& sample) const override {
    const char* const path = sample.file.c_str();
    if (whole_files_) {
      sample.lent = reader_->read(path, sample.storage);
      return;
    }
    if (sample.lent.empty() && !sample.bytes.empty()) {
      throw ConfigError(
          "queue: option 'io' is given, and '{}' is compressed, and read as a stream; leave io "
          "out, or decompress it",
          sample.file);
    }
    // The length of a damaged record is unknown.
    if (sample.label >= 0 && !sample.lent.empty()) {
      sample.lent = reader_->read(path, sample.offset, sample.lent.size(), sample.storage);
    }
    inner_->load(sample);
  }

 private:
  const std::unique_ptr<FileReader> reader_;
  const bool whole_files_;
};

// ---- read ahead --------------------------------------------------------------

/// Touches each page of a lent sample, so that the system reads the missing ones.
void touch(std::span<const std::byte> bytes) {
  constexpr std::size_t kPage = 4096;
  for (std::size_t at = 0; at < bytes.size(); at += kPage) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[at]));
  }
}

class ReadAhead final : public SourceOver {
 public:
  ReadAhead(std::unique_ptr<Source> inner, const ReadAheadPlan& plan);
  ~ReadAhead() override;

  bool next(Sample& sample) override;

 private:
  struct Slot {
    Sample sample;
    std::exception_ptr failure;
    std::uint64_t bytes = 0;         // counted in bytes_
    bool read = false, end = false;  // end: end of data
  };

  void read(const std::stop_token& stop) noexcept;
  bool has_room() const noexcept;

  const ReadAheadPlan plan_;
  std::mutex choosing_;  // held to call the inner source; taken before mutex_
  std::mutex mutex_;
  std::condition_variable_any room_, filled_;
  // mutex_ protects everything below.
  std::vector<Slot> slots_;  // a ring
  std::uint64_t given_ = 0,
                taken_ = 0;            // slots that next() has emptied, and that readers have taken
  std::uint64_t bytes_ = 0;            // of samples that are read
  bool ended_ = false;                 // no reader takes another slot
  std::vector<std::jthread> readers_;  // last, so that the threads end first
};

ReadAhead::ReadAhead(std::unique_ptr<Source> inner, const ReadAheadPlan& plan)
    : SourceOver(std::move(inner)), plan_(plan), slots_(plan.samples) {
  PENSTOCK_ASSERT(plan.samples > 0 && plan.readers > 0);
  for (std::int32_t i = 0; i < plan.readers; ++i) {
    readers_.emplace_back([this](const std::stop_token& stop) { read(stop); });
  }
}

ReadAhead::~ReadAhead() {
  for (std::jthread& reader : readers_) reader.request_stop();
}

bool ReadAhead::has_room() const noexcept {
  // One sample may always be read, whatever its size.
  return taken_ - given_ < slots_.size() && (bytes_ < plan_.bytes || taken_ == given_);
}

/// The loop of one reader.
void ReadAhead::read(const std::stop_token& stop) noexcept {
  while (true) {
    Slot* slot = nullptr;
    bool chosen = false;
    std::exception_ptr failure;
    {
      const std::lock_guard choosing(choosing_);
      {
        std::unique_lock lock(mutex_);
        if (!room_.wait(lock, stop, [this] { return ended_ || has_room(); }) || ended_) return;
        slot = &slots_[taken_++ % slots_.size()];
      }
      try {
        chosen = inner_->next(slot->sample);
      } catch (...) {
        failure = std::current_exception();
      }
      if (!chosen && !failure) {
        const std::lock_guard lock(mutex_);
        ended_ = true;
      }
    }
    try {
      if (chosen) {
        inner_->load(slot->sample);
        touch(slot->sample.lent);
      }
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    slot->end = !chosen && !failure;
    slot->failure = std::move(failure);  // its last owner is the thread that rethrows it
    slot->read = true;
    slot->bytes = slot->sample.content().size();
    bytes_ += slot->bytes;
    filled_.notify_one();
    if (ended_) room_.notify_all();
  }
}

bool ReadAhead::next(Sample& sample) {
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[given_ % slots_.size()];
  filled_.wait(lock, [&slot] { return slot.read; });
  if (slot.end) return false;  // the slot stays there, so later calls see it again
  std::swap(sample, slot.sample);
  const std::exception_ptr failure = std::exchange(slot.failure, nullptr);
  slot.read = false;
  bytes_ -= slot.bytes;
  ++given_;
  room_.notify_one();
  if (failure) std::rethrow_exception(failure);
  return true;
}

// ---- one sample --------------------------------------------------------------

class RepeatedSample final : public Source {
 public:
  RepeatedSample(Source& set, const DataPlan& plan)
      : plan_(plan), set_(set.facts()), given_(plan.first_sample) {
    const auto rank = static_cast<std::uint64_t>(plan.rank),
               ranks = static_cast<std::uint64_t>(plan.ranks);
    size_ = (set_.size + ranks - 1 - rank) / ranks;
    if (size_ == 0) {
      throw ConfigError(
          "the data in '{}' have fewer samples than there are ranks; use fewer ranks or more data",
          plan.directory);
    }
    try {
      if (!set.next(first_)) throw DataError("there is none");
      set.load(first_);
    } catch (const DataError& error) {
      throw ConfigError(
          "repeat_cached_sample repeats the first sample of '{}', which cannot be read: {}; "
          "replace it, or leave repeat_cached_sample out",
          plan.directory, error.what());
    }
    const std::span<const std::byte> content = first_.content();
    content_.assign(content.begin(), content.end());
  }

  bool next(Sample& sample) override {
    const std::uint64_t epoch = given_ / size_;
    if (plan_.epochs >= 0 && epoch >= static_cast<std::uint64_t>(plan_.epochs)) return false;
    sample.label = first_.label;
    sample.index = given_ % size_ * static_cast<std::uint64_t>(plan_.ranks) +
                   static_cast<std::uint64_t>(plan_.rank);
    sample.epoch = epoch;
    sample.file = first_.file;
    sample.offset = first_.offset;
    sample.layout = first_.layout;
    sample.boxes = first_.boxes;
    sample.lent = content_;
    sample.bytes.clear();
    ++given_;
    return true;
  }

  SourceFacts facts() const override {
    return {.size = size_,
            .size_over_ranks = set_.size,
            .kind = set_.kind,
            .classes = set_.classes,
            .note = "every sample is the first of the set, '" + first_.file + "' at byte " +
                    std::to_string(first_.offset) +
                    ", repeated from memory: " + std::to_string(content_.size()) + " bytes"};
  }

 private:
  const DataPlan plan_;
  const SourceFacts set_;  // of all ranks; its files belong to a source that may have ended
  std::uint64_t size_ = 0;
  Sample first_;  // without its content
  std::vector<std::byte> content_;
  std::uint64_t given_;
};

}  // namespace

std::unique_ptr<Source> read_by(std::unique_ptr<Source> inner, std::unique_ptr<FileReader> reader,
                                bool whole_files) {
  return std::make_unique<FileReads>(std::move(inner), std::move(reader), whole_files);
}

std::unique_ptr<Source> read_ahead(std::unique_ptr<Source> inner, const ReadAheadPlan& plan) {
  return std::make_unique<ReadAhead>(std::move(inner), plan);
}

DataPlan plan_of_whole_set(const DataPlan& plan) {
  DataPlan whole = plan;
  whole.rank = 0;
  whole.ranks = 1;
  whole.epochs = 1;
  whole.shuffle = false;
  whole.first_sample = 0;
  return whole;
}

std::unique_ptr<Source> repeat_first_sample(Source& set, const DataPlan& plan) {
  return std::make_unique<RepeatedSample>(set, plan);
}

}  // namespace penstock::datasets
