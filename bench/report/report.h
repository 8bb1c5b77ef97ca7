// SPDX-License-Identifier: Apache-2.0
// A report is a view of what a sweep found out: a table, a file to load elsewhere, a page.
//
// To add one: a file in reports/ that ends in `extern constinit const ReportEntry
// NAME_report{...}`, and one line `penstock_component(report NAME SOURCES reports/NAME.cpp)` in
// CMakeLists.txt.
#pragma once

#include <ostream>
#include <string_view>

#include "bench/sweep_result.h"
#include "dataflow/entry.h"

namespace penstock {

/// What a terminal can show. Files ignore it.
struct ReportStyle {
  int width = 100;      ///< columns
  bool colour = false;  ///< ANSI escapes are understood, and wanted
};

struct ReportEntry {
  std::string_view name{}, summary{};
  /// Its name in the folder of results; empty: for the terminal.
  std::string_view file{};
  void (*write)(const SweepResult&, const ReportStyle&, std::ostream&) = nullptr;
};

/// Every report of this program; generated from the component lists.
const Table<ReportEntry>& report_table();

}  // namespace penstock
