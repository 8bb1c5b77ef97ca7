// SPDX-License-Identifier: Apache-2.0
// Texts about rates are written for images, in img/s. These functions put the unit of a run's
// batches in its place. Pure functions.
#pragma once

#include <string>

#include "bench/document/document.h"
#include "bench/record/sweep_result.h"

namespace penstock {

/// The unit of all rows of a sweep, also of its ceilings, whose feeders know none.
std::string sample_unit(const SweepResult& sweep);

/// The text in the unit of the run's rates: "412 samples/s".
std::string in_unit_of(const RunConfig& config, std::string text);
/// All but commands and other lines to copy.
document::Document in_unit_of(const SweepResult& sweep, document::Document document);

}  // namespace penstock
