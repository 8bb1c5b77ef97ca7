// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/record_source.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "dataflow/datasets/sample_order.h"
#include "dataflow/error.h"
#include "dataflow/machine/workers.h"

namespace penstock::datasets {
namespace {

/// The records of all shards, one shard after the other; sixteen bytes per record.
struct RecordIndex {
  std::vector<Record> records;
  std::vector<std::size_t> ends;  ///< for each shard, the end of its records

  std::size_t shard_of(std::size_t record) const noexcept {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends, record) - ends.begin());
  }
};

/// What is wrong with shards that map() refused, by their paths.
using DamagedShards = std::map<std::string, std::string, std::less<>>;

RecordIndex index_shards(const std::vector<MappedFile>& shards, const RecordFormat& format,
                         const DataPlan& plan, const DamagedShards& damaged) {
  std::vector<std::vector<Record>> found(shards.size());
  for_each_shard(shards.size(), plan.threads, [&](std::size_t shard) {
    if (damaged.contains(shards[shard].path())) {
      found[shard].push_back({});
      return;
    }
    format.index(shards[shard], [&](const Record& record) {
      plan.expect_no_stop();
      found[shard].push_back(record);
    });
  });
  RecordIndex index;
  std::size_t count = 0;
  for (const std::vector<Record>& records : found) count += records.size();
  index.records.reserve(count);
  for (std::vector<Record>& records : found) {
    index.records.insert(index.records.end(), records.begin(), records.end());
    std::vector<Record>().swap(records);
    index.ends.push_back(index.records.size());
  }
  return index;
}

class RecordSource final : public Source {
 public:
  RecordSource(const DataPlan& plan, FileList shards, std::unique_ptr<RecordFormat> format)
      : files_(std::move(shards)), format_(std::move(format)) {
    shards_.reserve(files_.size());
    for (std::size_t i = 0; i < files_.size(); ++i) {
      plan.expect_no_stop();
      shards_.push_back(map(files_.path(i)));
    }
    index_ = index_shards(shards_, *format_, plan, damaged_);
    for (const MappedFile& shard : shards_)
      shard.release_pages();  // so that a cold run can begin cold
    check(plan);
    order_.emplace(plan, index_.records.size());
  }

  bool next(Sample& sample) override {
    const std::optional<SampleOrder::Turn> turn = order_->next();
    if (!turn) return false;
    const Record& record = index_.records[turn->sample];
    const MappedFile& shard = shards_[index_.shard_of(turn->sample)];
    sample.label = record.label;
    sample.index = turn->sample;
    sample.epoch = turn->epoch;
    sample.file = shard.path();
    sample.offset = record.offset;
    sample.lent = shard.bytes().subspan(record.offset, record.bytes);
    return true;
  }

  void load(Sample& sample) const override {
    if (const auto found = damaged_.find(sample.file); found != damaged_.end()) {
      refuse_record(sample, found->second);
    }
    format_->open(sample);
    if (sample.label < 0) refuse_record(sample, "it has no label");
  }

  SourceFacts facts() const override {
    return {.size = order_->size(),
            .size_over_ranks = order_->size_over_ranks(),
            .kind = format_->kind(),
            .classes = classes_,
            .files = std::ranges::all_of(shards_, &MappedFile::is_mapped) ? &files_ : nullptr,
            .note = format_->note()};
  }

 private:
  MappedFile map(const std::string& path) {
    try {
      return format_->map(path);
    } catch (const DataError& error) {
      if (files_.size() == 1) throw ConfigError("the data file '{}' is {}", path, error.what());
      damaged_.emplace(path, std::string("the file is ") + error.what());
      return {path, {}};
    }
  }

  /// Checks that records are inside their shards and labels inside the plan's classes.
  void check(const DataPlan& plan) {
    if (index_.records.empty()) {
      throw ConfigError("the data in '{}' hold no sample; expected at least one; check --data-dir",
                        plan.directory);
    }
    std::int32_t greatest = 0;
    std::size_t first = 0;
    for (std::size_t shard = 0; shard < shards_.size(); first = index_.ends[shard++]) {
      const std::uint64_t size = shards_[shard].bytes().size();
      for (std::size_t i = first; i < index_.ends[shard]; ++i) {
        const Record& record = index_.records[i];
        PENSTOCK_ASSERT(record.offset <= size && record.bytes <= size - record.offset);
        greatest = std::max(greatest, record.label);
        if (record.label >= plan.classes) {
          refuse_label(shards_[shard].path(), record.offset, record.label, plan.classes);
        }
      }
    }
    classes_ = greatest + 1;
  }

  const FileList files_;
  const std::unique_ptr<RecordFormat> format_;
  std::vector<MappedFile> shards_;
  DamagedShards damaged_;
  RecordIndex index_;
  std::int32_t classes_ = 0;
  std::optional<SampleOrder> order_;
};

}  // namespace

std::unique_ptr<Source> make_record_source(const DataPlan& plan, FileList shards,
                                           std::unique_ptr<RecordFormat> format) {
  return std::make_unique<RecordSource>(plan, std::move(shards), std::move(format));
}

void refuse_label(const std::string& path, std::uint64_t offset, std::int32_t label,
                  std::int32_t classes) {
  throw ConfigError(
      "the data in '{}' have label {} (at byte {}); the model has {} outputs; expected labels "
      "below that; pass --classes {} or more, or choose other data",
      path, label, offset, classes, std::int64_t{label} + 1);
}

void for_each_shard(std::size_t shards, std::int32_t threads,
                    const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  std::size_t failed = shards;
  const auto workers = static_cast<std::int32_t>(
      std::clamp<std::size_t>(shards, 1, static_cast<std::size_t>(std::max(threads, 1))));
  run_workers(workers, [&](std::int32_t) {
    for (std::size_t shard = next++; shard < shards; shard = next++) {
      try {
        work(shard);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (shard < failed) failure = std::current_exception();
        failed = std::min(failed, shard);
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

void give_image(Sample& sample, std::span<const std::byte> image,
                std::span<const std::byte> record) {
  if (image.data() >= record.data() && image.data() < record.data() + record.size()) {
    sample.lent = image;
    return;
  }
  sample.bytes.assign(image.begin(), image.end());
  sample.lent = {};
}

void refuse_record(const Sample& sample, std::string_view problem) {
  throw DataError(
      "reading sample {} of '{}' at byte {}: {}; expected a whole record; replace the file",
      sample.index, sample.file, sample.offset, problem);
}

}  // namespace penstock::datasets
