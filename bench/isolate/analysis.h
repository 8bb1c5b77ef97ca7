// SPDX-License-Identifier: Apache-2.0
// Derives all findings from the measured rows: cost, cause, recommendations, doubts, and the
// verdict in words. A pure function.
#pragma once

#include "bench/isolate/isolate_plan.h"
#include "bench/isolate/isolation.h"

namespace penstock::isolate {

/// Fills in everything that follows from `found.measurement`, and its `blocks`. Unknown results
/// stay empty.
void analyse(Isolation& found, const IsolatePlan& plan);

}  // namespace penstock::isolate
