// SPDX-License-Identifier: Apache-2.0
// A report is a view of a sweep's results: a table, a data file, a page.
//
// To add one: a file in formats/ that ends in `extern constinit const ReportEntry
// NAME_report{...}`, and one line `penstock_component(report NAME SOURCES formats/NAME.cpp)` in
// CMakeLists.txt.
#pragma once

#include <ostream>
#include <string_view>

#include "bench/document/terminal.h"
#include "bench/record/sweep_result.h"
#include "dataflow/entry.h"

namespace penstock::report {

struct ReportEntry {
  std::string_view name{}, summary{};
  /// The file name in the results folder; empty: for the terminal.
  std::string_view file{};
  void (*write)(const SweepResult&, const document::TerminalStyle&, std::ostream&) = nullptr;
};

/// Every report of this program. The build generates it from the component lists.
const Table<ReportEntry>& report_table();

}  // namespace penstock::report
