// SPDX-License-Identifier: Apache-2.0
// A report is a view of a sweep's results: a table, a data file, a page.
//
// To add one: a file in formats/ that ends in `extern constinit const ReportEntry
// NAME_report{...}`, and one line `penstock_component(report NAME SOURCES formats/NAME.cpp)` in
// CMakeLists.txt.
#pragma once

#include <ostream>
#include <string_view>

#include "bench/record/sweep_result.h"
#include "dataflow/entry.h"

namespace penstock::report {

/// The capabilities of the terminal. Reports for files ignore it.
struct ReportStyle {
  int width = 100;      ///< columns
  bool colour = false;  ///< ANSI escapes are supported and wanted
};

struct ReportEntry {
  std::string_view name{}, summary{};
  /// The file name in the results folder; empty: for the terminal.
  std::string_view file{};
  void (*write)(const SweepResult&, const ReportStyle&, std::ostream&) = nullptr;
};

/// Every report of this program. The build generates it from the component lists.
const Table<ReportEntry>& report_table();

}  // namespace penstock::report
