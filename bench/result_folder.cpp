// SPDX-License-Identifier: Apache-2.0
#include "bench/result_folder.h"

#include <fmt/format.h>

#include <sstream>

#include "bench/pages/sweep_page.h"
#include "bench/report.h"
#include "dataflow/error.h"
#include "dataflow/io/output_file.h"

namespace penstock {
ResultFolder::ResultFolder(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) {
    throw ConfigError(
        fmt::format("cannot make the folder '{}' for results: {}; give --out a folder that "
                    "can be written",
                    path_.native(), error.message()));
  }
  lock_.emplace(path_);
  if (lock_->is_ours()) return;
  throw ConfigError(
      fmt::format("another process writes its results to the folder '{}'; wait for it to end, or "
                  "give --out another folder",
                  path_.native()));
}

std::string files_line(const ResultFolder& folder, std::initializer_list<std::string_view> files,
                       bool saved) {
  if (!saved) {
    return fmt::format(
        "The folder '{}' could not be written: what is in it is older than this result\n",
        folder.path().native());
  }
  std::string names;
  for (const std::string_view file : files) {
    names += fmt::format("{}{}/{}", names.empty() ? "" : ", ", folder.path().native(), file);
  }
  return names + "\n";
}

void ResultFolder::write(const SweepResult& sweep) const {
  for (const ReportEntry* report : report_table().entries) {
    if (report->file.empty()) continue;
    std::ostringstream text;
    report->write(sweep, {}, text);
    replace_file(path_ / report->file, text.str());
  }
  write_sweep_figures(sweep, path_ / "figures");
}

}  // namespace penstock
