// SPDX-License-Identifier: Apache-2.0
// One sample in place of a data set: read once, held in memory, and given whenever a sample is
// asked for. What is left of the work is decoding. Positions go on as those of the set would, so
// that what an image's position decides (crops, flips, the end of an epoch) stays as various.
#pragma once

#include <memory>

#include "dataflow/source.h"

namespace penstock {

/// The plan that the set is opened with: its first sample, the same for every rank.
DataPlan plan_of_first_sample(const DataPlan& plan);

/// Gives the first sample of `set`, which is opened with plan_of_first_sample(plan) and not needed
/// afterwards. Throws ConfigError where that sample cannot be read.
std::unique_ptr<Source> repeat_first_sample(Source& set, const DataPlan& plan);

}  // namespace penstock
