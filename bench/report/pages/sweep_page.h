// SPDX-License-Identifier: Apache-2.0
// Writes report.html of a sweep, and its figures as separate files.
#pragma once

#include <filesystem>
#include <ostream>

#include "bench/record/sweep_result.h"
#include "bench/report/report.h"

namespace penstock::report {

void write_sweep_page(const SweepResult& sweep, const document::TerminalStyle& style,
                      std::ostream& out);

/// Writes supply.svg, bottleneck.svg, cost.svg and split.svg to `folder`, and pipeline.svg,
/// steps.svg and queues.svg for the row that costs most. Creates the folder if necessary, and
/// removes files of figures without data. Throws DataError, with the path.
void write_sweep_figures(const SweepResult& sweep, const std::filesystem::path& folder);

}  // namespace penstock::report
