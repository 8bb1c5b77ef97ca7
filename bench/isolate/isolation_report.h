// SPDX-License-Identifier: Apache-2.0
// Writes the findings of `penstock isolate`: as text for a terminal or a log, as a page about what
// one feeder costs one trainer, as figures for papers, and as the folder of results. Unknown
// findings are left out, or said to be missing.
#pragma once

#include <filesystem>
#include <ostream>

#include "bench/document/document.h"
#include "bench/isolate/isolation.h"

namespace penstock::isolate {

/// Plain text of at most 100 columns: the verdict, then the figures. Names and foreign sentences
/// may be longer.
void write_isolation_text(const Isolation& found, std::ostream& out);

/// One HTML file: verdict, figures, tables, the machine, and how to repeat the measurement.
void write_isolation_page(const Isolation& found, std::ostream& out);

/// The figures of the page. Those without data show nothing.
struct IsolationFigures {
  document::Figure pipeline, supply, curve;
  document::Figure waterfall;  ///< of the ladder; without a ladder, of the parts of the cost
  document::Figure delivery;   ///< where the time of a batch from another process goes
  document::Figure split, supply_demand, steps, queues;
};

IsolationFigures figures_of(const Isolation& isolation);

/// Writes the page's figures as separate SVG files, for papers: `folder`/waterfall.svg, and so on.
/// Creates the folder if necessary. Figures without data are not written, and their files from an
/// earlier result are removed. Throws ConfigError or DataError, with the path.
void write_isolation_figures(const Isolation& isolation, const std::filesystem::path& folder);

/// Writes only results.json. Called after each run, so that a crash keeps all measured runs. Throws
/// DataError.
void write_runs(const SweepResult& sweep, const std::filesystem::path& folder);

/// Writes isolation.json, report.html with its figures, and the same files of runs as every report
/// of a sweep. Throws DataError.
void write_isolation_files(const Isolation& found, const std::filesystem::path& folder);

}  // namespace penstock::isolate
