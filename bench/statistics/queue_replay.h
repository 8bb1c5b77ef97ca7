// SPDX-License-Identifier: Apache-2.0
// What a bounded queue between a producer and a consumer makes of their measured times: replays
// them batch by batch, so that no distribution has to be assumed. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/statistics/estimate.h"

namespace penstock {

struct ReplayPlan {
  /// Batches that fit between the two, at least 1, the one that the producer works on or cannot put
  /// down and the one that the consumer works on excluded. A ring whose slots are held from the
  /// beginning of filling to the end of consumption has two more.
  std::size_t slots = 1;
  std::size_t batches = 20000;
  std::uint64_t seed = 1;
};
struct Replay {
  double ms_per_batch = 0;     ///< in the steady state
  double starved_percent = 0;  ///< of the consumer's time
  double blocked_percent = 0;  ///< of the producer's time: back-pressure
};
/// `producer_ms`: times between batches of a producer that is never blocked; `consumer_ms`: the
/// same of a consumer that is never starved. Drawn with replacement in runs of consecutive values
/// (so that their autocorrelation is kept), with the seed; the first tenth is warm-up. Both hold at
/// least one value, all at least 0. The same draws are made for every number of slots, so that
/// replays differ by the slots alone; what both sides have in common is lost.
Replay replay_queue(std::span<const double> producer_ms, std::span<const double> consumer_ms,
                    const ReplayPlan& plan);

}  // namespace penstock
