// SPDX-License-Identifier: Apache-2.0
// Pair averaging as in KungFu's PairAveragingOptimizer: no rank ever waits for another. In its step
// t, from 0, with the gradient g of the weights w, a rank
//   1. reads another rank's newest published model v,
//   2. averages: w <- w + (v - w) / 2 (the other rank does not change),
//   3. applies its own g,
//   4. publishes w as version t + 1.
// The initial weights are version 0. All ranks publish them before any rank reads. With `prefetch`,
// a separate thread does 1., beginning after 4. of the previous step, while the rank computes its
// gradient; the model that it reads is accordingly older.
//
// Staleness is counted when a model is used: the rank's own number of updates minus the version
// read. Each rank keeps its own running statistics of batch norm.
//
// Difference from KungFu: there, the average, the update and the saving of a step have no fixed
// order; here they have.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "trainer/collective.h"
#include "trainer/update_strategy.h"

namespace penstock::updates {

/// uniform: every other rank with equal probability. kungfu: as KungFu draws it, from all ranks; a
/// rank that draws itself takes its right neighbour, which is therefore chosen twice as often as
/// the others. round_robin: the right neighbour, then the next one, and so on.
enum class PeerRule : std::uint8_t { uniform, kungfu, round_robin };

/// A rank of `world` other than world.rank. world.size > 1, step >= 0.
inline std::int32_t choose_peer(PeerRule rule, World world, std::uint64_t seed, std::int64_t step) {
  PENSTOCK_ASSERT(world.size > 1);
  const auto right = [&](std::int64_t distance) {
    return static_cast<std::int32_t>((world.rank + distance) % world.size);
  };
  if (rule == PeerRule::round_robin) return right(1 + step % (world.size - 1));
  Random random(seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(world.rank));
  if (rule == PeerRule::uniform) {
    return right(
        1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(world.size) - 1)));
  }
  const auto drawn =
      static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(world.size)));
  return drawn == world.rank ? right(1) : drawn;
}

struct PairAveraging {
  bool prefetch = false;
  /// The rank whose model is read for a step, from 0; never the rank itself. Called once for each
  /// step.
  std::function<std::int32_t(std::int64_t step)> peer;
};

/// Larger staleness is counted as this value, and below its negative as the negative.
constexpr std::int64_t kMostStale = 8;

/// Needs the context's device. All ranks share counters in its probe: reads_stale_by_K, 0 <= K <=
/// 8, and reads_ahead_by_K, 1 <= K <= 8, for each K that occurs.
std::unique_ptr<UpdateStrategy> make_pair_averaging(const UpdateContext& context,
                                                    const PeerModels& models, PairAveraging rule);

}  // namespace penstock::updates
