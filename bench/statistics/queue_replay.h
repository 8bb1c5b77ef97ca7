// SPDX-License-Identifier: Apache-2.0
// Replays measured times of a producer and a consumer, batch by batch, through a bounded queue. It
// assumes no distribution. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::statistics {

struct ReplayPlan {
  /// Batches that fit between the two, at least 1. It excludes the batch that the producer works on
  /// or cannot put down, and the batch that the consumer works on. A ring whose slots are held from
  /// the start of filling to the end of consumption has two more.
  std::size_t slots = 1;
  std::size_t batches = 20000;
  std::uint64_t seed = 1;
};
/// Returns the ms per batch in steady state.
/// `producer_ms`: times between batches of a producer that is never blocked. `consumer_ms`: times
/// between batches of a consumer that is never starved. Both hold at least one value, all at least
/// 0. The replay draws runs of consecutive values with replacement, using the seed, which keeps
/// their autocorrelation. The first tenth is warm-up. Every number of slots uses the same draws, so
/// replays differ by the slots only. Correlation between producer and consumer is lost.
double replay_queue(std::span<const double> producer_ms, std::span<const double> consumer_ms,
                    const ReplayPlan& plan);

}  // namespace penstock::statistics
