// SPDX-License-Identifier: Apache-2.0
#include "bench/result_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>

#include "bench/pages/sweep_page.h"
#include "bench/report.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// 0, or the error that kept `text` from reaching the disk.
int write_through(const std::filesystem::path& path, const std::string& text) {
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "we"));
  if (file == nullptr) return errno;
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                       std::fflush(file.get()) == 0 && fsync(fileno(file.get())) == 0;
  if (!written) return errno;
  return std::fclose(file.release()) == 0 ? 0 : errno;
}

}  // namespace

void replace_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path beside = path;
  beside += fmt::format(".{}.tmp", getpid());
  int error = write_through(beside, text);
  if (error == 0 && std::rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  std::remove(beside.c_str());
  throw DataError(fmt::format("cannot write '{}': {}", path.native(), std::strerror(error)));
}

ResultFolder::ResultFolder(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) {
    throw ConfigError(
        fmt::format("cannot make the folder '{}' for results: {}; give --out a folder that "
                    "can be written",
                    path_.native(), error.message()));
  }
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
