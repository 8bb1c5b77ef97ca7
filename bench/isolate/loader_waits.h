// SPDX-License-Identifier: Apache-2.0
// Finds out why a training loop waits for a loader of the user's. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "bench/record/sweep_result.h"
#include "bench/record/wait_cause.h"

namespace penstock::isolate {

struct Isolation;

/// Call when cost, epochs, supply and diagnosis of `found` are known. `found` has a loader.
LoaderWaits find_waits(const Isolation& found);

/// Samples that wait for a processor for this share of their time say so, in per cent.
inline constexpr double kMuchProcessorWait = 30;

/// The mean of a fact over the usable runs that have it; none: no run has it.
std::optional<double> mean_fact(const Row& row, const std::string& name);

}  // namespace penstock::isolate
