// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/repeated_sample.h"

#include <string>
#include <utility>

#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

class RepeatedSample final : public Source {
 public:
  RepeatedSample(Source& set, const DataPlan& plan)
      : plan_(plan),
        kind_(set.kind()),
        classes_(set.classes()),
        size_over_ranks_(set.size()),
        given_(plan.first_sample) {
    const auto rank = static_cast<std::uint64_t>(plan.rank),
               ranks = static_cast<std::uint64_t>(plan.ranks);
    size_ = (size_over_ranks_ + ranks - 1 - rank) / ranks;
    if (size_ == 0) {
      throw ConfigError("the data in '" + plan.directory + "' have fewer samples than there are " +
                        "ranks; use fewer ranks or more data");
    }
    try {
      if (!set.next(first_)) throw DataError("there is none");
      set.load(first_);
    } catch (const DataError& error) {
      throw ConfigError("repeat_cached_sample repeats the first sample of '" + plan.directory +
                        "', which cannot be read: " + error.what() +
                        "; replace it, or leave repeat_cached_sample out");
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
    sample.lent = content_;
    sample.bytes.clear();
    ++given_;
    return true;
  }

  std::uint64_t size() const noexcept override { return size_; }
  std::uint64_t size_over_ranks() const noexcept override { return size_over_ranks_; }
  SampleKind kind() const noexcept override { return kind_; }
  std::int32_t classes() const noexcept override { return classes_; }
  std::string note() const override {
    return "every sample is the first of the set, '" + first_.file + "' at byte " +
           std::to_string(first_.offset) +
           ", repeated from memory: " + std::to_string(content_.size()) + " bytes";
  }

 private:
  const DataPlan plan_;
  const SampleKind kind_;
  const std::int32_t classes_;
  const std::uint64_t size_over_ranks_;
  std::uint64_t size_ = 0;
  Sample first_;  // without its content
  std::vector<std::byte> content_;
  std::uint64_t given_;
};

}  // namespace

DataPlan plan_of_first_sample(const DataPlan& plan) {
  DataPlan first = plan;
  first.rank = 0;
  first.ranks = 1;
  first.epochs = 1;
  first.shuffle = false;
  first.first_sample = 0;
  return first;
}

std::unique_ptr<Source> repeat_first_sample(Source& set, const DataPlan& plan) {
  return std::make_unique<RepeatedSample>(set, plan);
}

}  // namespace penstock::datasets
