// SPDX-License-Identifier: Apache-2.0
// In which order shards are read that can only be read from their beginnings, and which part of
// them is a rank's. An epoch's shards, shuffled as a function of (seed, epoch), are laid end to
// end; rank r of R has samples r/R to (r + 1)/R of that. So ranks share no sample, leave none out,
// have equal shares within one sample, and read no shard in common but at the ends of their shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataflow/source.h"

namespace penstock {

/// Samples [first, first + count) of a shard.
struct ShardPart {
  std::size_t shard = 0;
  std::uint64_t first = 0, count = 0;
  bool operator==(const ShardPart&) const = default;
};

class StreamOrder {
 public:
  /// `samples` of each shard. Throws ConfigError where some rank would have none, and for more than
  /// an index can tell apart (2^32).
  StreamOrder(const DataPlan& plan, std::vector<std::uint64_t> samples);

  /// What this rank reads in an epoch, in its order; none of the parts is empty.
  std::vector<ShardPart> parts(std::uint64_t epoch) const;

  /// Samples in one epoch of this rank's share.
  std::uint64_t size() const noexcept { return end_ - begin_; }
  /// Samples in one epoch of all ranks.
  std::uint64_t size_over_ranks() const noexcept { return before_.back() + samples_.back(); }
  /// Of all shards before `shard`, in the order in which they were listed.
  std::uint64_t samples_before(std::size_t shard) const noexcept { return before_[shard]; }

 private:
  const std::uint64_t seed_;
  const bool shuffle_;
  const std::vector<std::uint64_t> samples_;
  std::vector<std::uint64_t> before_;
  std::uint64_t begin_ = 0, end_ = 0;  // this rank's, in the shards of an epoch laid end to end
};

}  // namespace penstock
