// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep/result_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <sstream>
#include <system_error>
#include <utility>

#include "bench/report/pages/sweep_page.h"
#include "bench/report/report.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"

namespace penstock {

FolderLock::FolderLock(const std::filesystem::path& folder)
    : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      is_ours_(flock(folder_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {}

bool FolderLock::is_of(const std::filesystem::path& folder) const {
  struct stat held {
  }, named{};
  return fstat(folder_.get(), &held) == 0 && lstat(folder.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

FolderLock lock_results(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw ConfigError(
        "cannot make the folder '{}' for results: {}; give --out a folder that can be written",
        folder.native(), error.message());
  }
  FolderLock lock(folder);
  if (lock.is_ours()) return lock;
  throw ConfigError(
      "another process writes its results to the folder '{}'; wait for it to end, or give --out "
      "another folder",
      folder.native());
}

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
