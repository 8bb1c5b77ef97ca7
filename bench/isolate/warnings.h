// SPDX-License-Identifier: Apache-2.0
// Lists why the figures may mislead, and what to do about it. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/isolate/isolate_plan.h"
#include "bench/isolate/isolation.h"

namespace penstock::isolate {

/// Returns what a reader must know before believing `found`, one sentence each; empty if there is
/// no doubt. `found` must contain all measurements, but not necessarily a verdict.
std::vector<std::string> find_warnings(const Isolation& found, const IsolatePlan& plan);

}  // namespace penstock::isolate
