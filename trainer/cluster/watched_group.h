// SPDX-License-Identifier: Apache-2.0
// An exchange that reports when its rank waits for the others, so that liveness/ finds a rank that
// does not come.
#pragma once

#include <memory>

#include "dataflow/clock.h"
#include "trainer/cluster/rank_progress.h"
#include "trainer/collective.h"

namespace penstock::cluster {

/// Timeouts of an exchange.
struct StepPatience {
  Nanoseconds first_step = std::chrono::seconds(300);
  /// For later steps: the longer of this and kMedians times the median step so far.
  Nanoseconds step = std::chrono::seconds(30);
  static constexpr int kMedians = 20;
};

/// Returns `group`, with every wait reported to `progress`. `progress` and `clock` outlive it.
std::unique_ptr<CollectiveGroup> watch(std::unique_ptr<CollectiveGroup> group,
                                       const StepPatience& patience, RankProgress& progress,
                                       const Clock& clock);

}  // namespace penstock::cluster
