// SPDX-License-Identifier: Apache-2.0
// The folder that a sweep leaves its results in. Files are replaced as a whole: whoever reads one,
// or finds it after a crash or a full disk, sees the results as they were after some run.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "bench/folder_lock.h"
#include "bench/sweep_result.h"

namespace penstock {

class ResultFolder {
 public:
  /// Makes the folder where it is missing, and locks it. Throws ConfigError when that cannot be
  /// done, or another process has the lock.
  explicit ResultFolder(std::filesystem::path path);

  /// Writes the file of every report, and the figures of the page as SVG into figures/. Throws
  /// DataError, with the path and the system's reason; files that could not be written keep what
  /// they held.
  void write(const SweepResult& sweep) const;

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  FolderLock lock_;
};

/// What a verb says last: that the folder has `files`, or that it has older ones.
std::string files_line(const ResultFolder& folder, std::initializer_list<std::string_view> files,
                       bool saved);

}  // namespace penstock
