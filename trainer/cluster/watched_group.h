// SPDX-License-Identifier: Apache-2.0
// An exchange that tells where its rank waits for the others, so that one that does not come is
// found: see liveness/.
#pragma once

#include <memory>

#include "dataflow/clock.h"
#include "trainer/collective.h"
#include "trainer/rank_progress.h"

namespace penstock {

/// How long an exchange may take.
struct StepPatience {
  Nanoseconds first_step = std::chrono::seconds(300);
  /// Of later steps: the longer of this and kMedians times the median step so far.
  Nanoseconds step = std::chrono::seconds(30);
  static constexpr int kMedians = 20;
};

/// `group`, with `progress` told of every wait. `progress` and `clock` outlive it.
std::unique_ptr<CollectiveGroup> watch(std::unique_ptr<CollectiveGroup> group,
                                       const StepPatience& patience, RankProgress& progress,
                                       const Clock& clock);

}  // namespace penstock
