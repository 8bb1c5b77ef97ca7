// SPDX-License-Identifier: Apache-2.0
// The figures of the page about one feeder's cost.
#pragma once

#include "bench/isolate/isolation.h"
#include "bench/pages/page.h"

namespace penstock {

/// Those without data have nothing to show.
struct IsolationFigures {
  PageFigure pipeline, supply, curve;
  PageFigure waterfall;  ///< of the ladder; without one, of what the cost consists of
  PageFigure delivery;   ///< where the time of a batch goes that comes from another process
  PageFigure split, supply_demand, steps, queues;
};
IsolationFigures figures_of(const Isolation& isolation);

}  // namespace penstock
