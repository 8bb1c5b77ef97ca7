// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/sample_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/random.h"

namespace penstock::datasets {
namespace {

// Separate the random numbers of the orders of samples and of shards from every sample's.
constexpr std::uint64_t kShuffleStream = ~std::uint64_t{0}, kShardStream = ~std::uint64_t{1};

}  // namespace

SampleOrder::SampleOrder(const DataPlan& plan, std::size_t samples) : plan_(plan), order_(samples) {
  PENSTOCK_ASSERT(plan.rank >= 0 && plan.rank < plan.ranks);
  PENSTOCK_ASSERT(samples < (std::uint64_t{1} << 32));  // the width of an index
  if (samples < static_cast<std::size_t>(plan.ranks)) {
    throw ConfigError(
        "the data in '{}' are {} images for {} ranks; expected at least one for each; use fewer "
        "ranks or more images",
        plan.directory, samples, plan.ranks);
  }
  epoch_ = plan.first_sample / size();
  begin_epoch();
  position_ +=
      static_cast<std::size_t>(plan.first_sample % size()) * static_cast<std::size_t>(plan.ranks);
}

std::optional<SampleOrder::Turn> SampleOrder::next() {
  if (position_ >= order_.size()) {
    ++epoch_;
    begin_epoch();
  }
  if (plan_.epochs >= 0 && epoch_ >= static_cast<std::uint64_t>(plan_.epochs)) return std::nullopt;
  const std::uint32_t sample = order_[position_];
  position_ += static_cast<std::size_t>(plan_.ranks);
  return Turn{sample, epoch_};
}

std::uint64_t SampleOrder::size() const noexcept {
  const auto rank = static_cast<std::size_t>(plan_.rank),
             ranks = static_cast<std::size_t>(plan_.ranks);
  return (order_.size() - rank + ranks - 1) / ranks;
}

/// Each rank takes every ranks-th sample.
void SampleOrder::begin_epoch() {
  position_ = static_cast<std::size_t>(plan_.rank);
  std::iota(order_.begin(), order_.end(), 0U);
  if (!plan_.shuffle) return;
  Random random(plan_.seed, epoch_, kShuffleStream);
  for (std::size_t i = order_.size() - 1; i > 0; --i) {
    std::swap(order_[i], order_[random.below(i + 1)]);
  }
}

StreamOrder::StreamOrder(const DataPlan& plan, std::vector<std::uint64_t> samples)
    : seed_(plan.seed), shuffle_(plan.shuffle), samples_(std::move(samples)) {
  PENSTOCK_ASSERT(plan.rank >= 0 && plan.rank < plan.ranks);
  std::uint64_t all = 0;
  for (const std::uint64_t count : samples_) {
    before_.push_back(all);
    all += count;
  }
  const auto rank = static_cast<std::uint64_t>(plan.rank),
             ranks = static_cast<std::uint64_t>(plan.ranks);
  if (all < ranks || all >= std::uint64_t{1} << 32) {
    throw ConfigError(
        "the data in '{}' are {} samples for {} ranks; expected at least one for each, and fewer "
        "than 2^32; use fewer ranks or other data",
        plan.directory, all, ranks);
  }
  begin_ = all * rank / ranks;
  end_ = all * (rank + 1) / ranks;
}

std::vector<ShardPart> StreamOrder::parts(std::uint64_t epoch) const {
  std::vector<std::size_t> order(samples_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (shuffle_) {
    Random random(seed_, epoch, kShardStream);
    for (std::size_t i = order.size() - 1; i > 0; --i) {
      std::swap(order[i], order[random.below(i + 1)]);
    }
  }
  std::vector<ShardPart> parts;
  std::uint64_t at = 0;
  for (const std::size_t shard : order) {
    const std::uint64_t next = at + samples_[shard];
    const std::uint64_t first = std::max(at, begin_), last = std::min(next, end_);
    if (first < last) parts.push_back({shard, first - at, last - first});
    at = next;
  }
  return parts;
}

}  // namespace penstock::datasets
