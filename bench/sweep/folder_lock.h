// SPDX-License-Identifier: Apache-2.0
// A lock on a folder that its process holds: two writers of one folder meet it, and a folder whose
// process was killed is known by its absence.
#pragma once

#include <filesystem>

#include "bench/child_process.h"

namespace penstock {

class FolderLock {
 public:
  /// Takes the lock of an existing folder if no other process has it, and never waits.
  explicit FolderLock(const std::filesystem::path& folder);

  /// False: another process has the lock. File systems that know no locks never say so.
  bool is_ours() const noexcept { return is_ours_; }
  /// False: the folder was removed or replaced, or could not be opened.
  bool is_of(const std::filesystem::path& folder) const;

 private:
  FileDescriptor folder_;
  bool is_ours_ = false;
};

/// The folder that --out names: makes it where it is missing, and locks it. Throws ConfigError when
/// that cannot be done, or another process has the lock.
FolderLock lock_results(const std::filesystem::path& folder);

}  // namespace penstock
