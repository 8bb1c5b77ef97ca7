// SPDX-License-Identifier: Apache-2.0
// Pair averaging as KungFu's PairAveragingOptimizer has it, in which no rank ever waits for
// another. In its step t, from 0, with the gradient g of the weights w, a rank
//   1. reads another rank's newest published model v,
//   2. averages: w <- w + (v - w) / 2; the other rank does not notice,
//   3. applies its own g,
//   4. publishes w as version t + 1.
// The weights that all begin with are version 0, and everybody has published them before anybody
// reads. With `prefetch`, 1. is done on a thread of its own from 4. of the step before on, while
// the rank computes its gradient: the model is read that much earlier.
//
// Staleness is counted where a model is used: a rank's own updates so far minus the version read.
// Running statistics of batch norm stay each rank's own.
//
// Beside KungFu: there the average, the update and the saving of a step are not ordered among each
// other; here they are.
#pragma once

#include <functional>
#include <memory>

#include "trainer/update_strategy.h"

namespace penstock {

struct PairAveraging {
  bool prefetch = false;
  /// Whose model a rank reads for its step, from 0; never its own. Called once for each step.
  std::function<std::int32_t(std::int64_t step)> peer;
};

/// Staleness of more than this, or less than minus this, is counted as this.
constexpr std::int64_t kMostStale = 8;

/// Needs the context's device and models, and its clock for prefetching. Its probe gets counters
/// reads_stale_by_K, 0 <= K <= 8, and reads_ahead_by_K, 1 <= K <= 8, that all ranks share, of those
/// K that occur.
std::unique_ptr<UpdateStrategy> make_pair_averaging(const UpdateContext& context,
                                                    PairAveraging rule);

}  // namespace penstock
