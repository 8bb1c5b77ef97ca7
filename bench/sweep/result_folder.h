// SPDX-License-Identifier: Apache-2.0
// The folder for the results of a sweep. Files are replaced as a whole, so a reader always sees
// complete results, even after a crash or on a full disk. One writer at a time.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "bench/record/sweep_result.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock {

/// A lock on a folder, held by a process. It detects a second writer of the folder, and folders
/// whose process was killed.
class FolderLock {
 public:
  /// Takes the lock of an existing folder if no other process holds it. Never waits.
  explicit FolderLock(const std::filesystem::path& folder);

  /// False: another process holds the lock. Always true on file systems without locks.
  bool is_ours() const noexcept { return is_ours_; }
  /// False: the folder was removed or replaced, or could not be opened.
  bool is_of(const std::filesystem::path& folder) const;

 private:
  FileDescriptor folder_;
  bool is_ours_ = false;
};

/// Creates the folder that --out names, if necessary, and locks it. Throws ConfigError if this
/// fails or another process holds the lock.
FolderLock lock_results(const std::filesystem::path& folder);

class ResultFolder {
 public:
  /// Creates and locks the folder, as lock_results() does.
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
