// SPDX-License-Identifier: Apache-2.0
// Why figures may mislead, and what to do about it. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/isolate/isolate_plan.h"
#include "bench/isolate/isolation.h"

namespace penstock {

/// What a reader must know before believing `found`, a sentence each; empty: nothing speaks against
/// it. All that is measured is there; verdicts and cures need not be. `unexplained_share` of the
/// coupled rate is what a replay of measured times does not give.
std::vector<std::string> find_doubts(const Isolation& found, const IsolatePlan& plan,
                                     double unexplained_share);

}  // namespace penstock
