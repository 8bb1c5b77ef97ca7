// SPDX-License-Identifier: Apache-2.0
// Writes the HTML page about what one feeder costs one trainer: verdict, figures, tables, the
// machine, and how to repeat the measurement. It is a single file without dependencies.
#pragma once

#include <filesystem>
#include <ostream>

#include "bench/isolate/isolation.h"
#include "bench/report/pages/page.h"

namespace penstock::isolate {

/// The figures of the page. Those without data show nothing.
struct IsolationFigures {
  report::PageFigure pipeline, supply, curve;
  report::PageFigure waterfall;  ///< of the ladder; without a ladder, of the parts of the cost
  report::PageFigure delivery;   ///< where the time of a batch from another process goes
  report::PageFigure split, supply_demand, steps, queues;
};
IsolationFigures figures_of(const Isolation& isolation);

/// Omits unknown findings or says that they are missing; every member may be empty.
void write_isolation_page(const Isolation& isolation, std::ostream& out);

/// Writes the page's figures as separate SVG files, for papers: `folder`/waterfall.svg, and so on.
/// Creates the folder if necessary. Figures without data are not written, and their files from an
/// earlier result are removed. Throws ConfigError or DataError, with the path.
void write_isolation_figures(const Isolation& isolation, const std::filesystem::path& folder);

}  // namespace penstock::isolate
