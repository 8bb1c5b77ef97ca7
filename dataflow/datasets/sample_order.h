// SPDX-License-Identifier: Apache-2.0
// The order of a source's samples, epoch after epoch. It is shuffled as a function of (seed,
// epoch), split over ranks, and starts where the plan says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataflow/source.h"

namespace penstock::datasets {

/// The order of samples that can be read at any place.
class SampleOrder {
 public:
  struct Turn {
    std::uint32_t sample = 0;  ///< less than the number of samples
    std::uint64_t epoch = 0;
  };

  /// Orders `samples` samples, counted over all ranks. Throws ConfigError if some rank would have
  /// none.
  SampleOrder(const DataPlan& plan, std::size_t samples);

  /// Empty: the last epoch is over.
  std::optional<Turn> next();

  /// The number of samples in one epoch of this rank's share.
  std::uint64_t size() const noexcept;
  /// The number of samples in one epoch of all ranks.
  std::uint64_t size_over_ranks() const noexcept { return order_.size(); }

 private:
  void begin_epoch();

  const DataPlan plan_;
  std::vector<std::uint32_t> order_;  // the samples of all ranks, in this epoch's order
  std::size_t position_ = 0;          // in order_
  std::uint64_t epoch_ = 0;
};

/// Samples [first, first + count) of a shard.
struct ShardPart {
  std::size_t shard = 0;
  std::uint64_t first = 0, count = 0;
  bool operator==(const ShardPart&) const = default;
};

/// The order in which shards are read that can only be read from their beginnings, and each rank's
/// part of them. An epoch's shards, shuffled, are laid end to end. Rank r of R takes samples r/R to
/// (r + 1)/R of them. So ranks share no sample, leave none out, have equal shares within one
/// sample, and read the same shard only at the ends of their shares.
class StreamOrder {
 public:
  /// `samples` has the number of samples of each shard. Throws ConfigError if some rank would have
  /// none, or for more than 2^32 samples, the range of an index.
  StreamOrder(const DataPlan& plan, std::vector<std::uint64_t> samples);

  /// The parts that this rank reads in an epoch, in order; no part is empty.
  std::vector<ShardPart> parts(std::uint64_t epoch) const;

  /// The number of samples in one epoch of this rank's share.
  std::uint64_t size() const noexcept { return end_ - begin_; }
  /// The number of samples in one epoch of all ranks.
  std::uint64_t size_over_ranks() const noexcept { return before_.back() + samples_.back(); }
  /// The number of samples in all shards listed before `shard`.
  std::uint64_t samples_before(std::size_t shard) const noexcept { return before_[shard]; }

 private:
  const std::uint64_t seed_;
  const bool shuffle_;
  const std::vector<std::uint64_t> samples_;
  std::vector<std::uint64_t> before_;
  std::uint64_t begin_ = 0, end_ = 0;  // this rank's range, in an epoch's shards laid end to end
};

}  // namespace penstock::datasets
