// SPDX-License-Identifier: Apache-2.0
// From measured rows to what they mean: cost, cause, cure, doubts, and the verdict in words. A pure
// function.
#pragma once

#include <vector>

#include "bench/isolate/isolate_plan.h"
#include "bench/isolate/isolation.h"
#include "bench/isolate/predictions.h"

namespace penstock {

/// Fills in all that follows from `found`'s sweep, noise, stopped_because and the rows that its
/// indices name; what cannot be known stays empty. Returns the cures, best first.
std::vector<Cure> analyse(Isolation& found, const IsolatePlan& plan);

}  // namespace penstock
