// SPDX-License-Identifier: Apache-2.0
// The folder for the results of a sweep. Files are replaced as a whole, so a reader always sees
// complete results, even after a crash or on a full disk.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "bench/record/sweep_result.h"
#include "bench/sweep/folder_lock.h"

namespace penstock {

class ResultFolder {
 public:
  /// Creates the folder if necessary, and locks it. Throws ConfigError if this fails or another
  /// process holds the lock.
  explicit ResultFolder(std::filesystem::path path);

  /// Writes the file of every report, and the figures of the page as SVG into figures/. Throws
  /// DataError with the path and the system's reason. Files that cannot be written keep their old
  /// content.
  void write(const SweepResult& sweep) const;

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  FolderLock lock_;
};

/// The last line of a verb: the folder contains `files`, or (if not `saved`) older versions of
/// them.
std::string files_line(const ResultFolder& folder, std::initializer_list<std::string_view> files,
                       bool saved);

}  // namespace penstock
