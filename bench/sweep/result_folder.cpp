// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep/result_folder.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

#include "bench/report/pages/sweep_page.h"
#include "bench/report/report.h"
#include "dataflow/machine/output_file.h"

namespace penstock {

ResultFolder::ResultFolder(std::filesystem::path path)
    : path_(std::move(path)), lock_(lock_results(path_)) {}

std::string files_line(const ResultFolder& folder, std::initializer_list<std::string_view> files,
                       bool saved) {
  if (!saved) {
    return fmt::format(
        "The folder '{}' could not be written: its files are older than this result\n",
        folder.path().native());
  }
  std::string names;
  for (const std::string_view file : files) {
    names += fmt::format("{}{}/{}", names.empty() ? "" : ", ", folder.path().native(), file);
  }
  return names + "\n";
}

void ResultFolder::write(const SweepResult& sweep) const {
  for (const report::ReportEntry* report : report::report_table().entries) {
    if (report->file.empty()) continue;
    std::ostringstream text;
    report->write(sweep, {}, text);
    replace_file(path_ / report->file, text.str());
  }
  report::write_sweep_figures(sweep, path_ / "figures");
}

}  // namespace penstock
