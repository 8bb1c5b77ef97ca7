// SPDX-License-Identifier: Apache-2.0
// Replaces a data set by one sample: it is read once, held in memory, and given for every request.
// Only decoding is left as work. Positions advance as in the full set, so that everything that
// depends on an image's position (crops, flips, the end of an epoch) varies as usual.
#pragma once

#include <memory>

#include "dataflow/source.h"

namespace penstock::datasets {

/// The plan to open the set with: only its first sample, the same for every rank.
DataPlan plan_of_first_sample(const DataPlan& plan);

/// Gives the first sample of `set`, which must be opened with plan_of_first_sample(plan) and is not
/// needed afterwards. Throws ConfigError if that sample cannot be read.
std::unique_ptr<Source> repeat_first_sample(Source& set, const DataPlan& plan);

}  // namespace penstock::datasets
