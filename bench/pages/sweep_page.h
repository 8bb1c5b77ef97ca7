// SPDX-License-Identifier: Apache-2.0
// report.html of a sweep, and its figures as files of their own.
#pragma once

#include <filesystem>
#include <ostream>

#include "bench/sweep_result.h"

namespace penstock {

void write_sweep_page(const SweepResult& sweep, std::ostream& out);

/// `folder`/supply.svg, bottleneck.svg, cost.svg, split.svg, and of the row that costs most
/// pipeline.svg, steps.svg and queues.svg. The folder is made where it is missing; files of figures
/// without data are removed. Throws ConfigError or DataError, with the path.
void write_sweep_figures(const SweepResult& sweep, const std::filesystem::path& folder);

}  // namespace penstock
