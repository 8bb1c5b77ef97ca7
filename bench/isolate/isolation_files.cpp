// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolation_files.h"

#include <sstream>

#include "bench/isolate/isolation_json.h"
#include "bench/isolate/isolation_page.h"
#include "bench/report/report.h"
#include "bench/sweep/result_folder.h"
#include "dataflow/machine/output_file.h"

namespace penstock::isolate {
namespace {

/// The page about one feeder replaces the page about a sweep.
constexpr std::string_view kSweepPage = "html";

void write_report(const report::ReportEntry& report, const SweepResult& sweep,
                  const std::filesystem::path& folder) {
  std::ostringstream text;
  report.write(sweep, {}, text);
  replace_file(folder / report.file, text.str());
}

}  // namespace

void write_runs(const SweepResult& sweep, const std::filesystem::path& folder) {
  write_report(find_entry(report::report_table(), "json"), sweep, folder);
}

void write_isolation_files(const Isolation& found, const std::filesystem::path& folder) {
  replace_file(folder / "isolation.json", to_json(found).dump(1) + "\n");
  for (const report::ReportEntry* report : report::report_table().entries) {
    if (report->file.empty() || report->name == kSweepPage) continue;
    write_report(*report, found.measurement.sweep, folder);
  }
  std::ostringstream page;
  write_isolation_page(found, page);
  replace_file(folder / "report.html", page.str());
  write_isolation_figures(found, folder / "figures");
}

}  // namespace penstock::isolate
