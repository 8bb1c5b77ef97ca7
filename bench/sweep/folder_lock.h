// SPDX-License-Identifier: Apache-2.0
// A lock on a folder, held by a process. It detects a second writer of the folder, and folders
// whose process was killed.
#pragma once

#include <filesystem>

#include "dataflow/machine/file_descriptor.h"

namespace penstock {

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

}  // namespace penstock
