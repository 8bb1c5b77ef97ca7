// SPDX-License-Identifier: Apache-2.0
// A folder for the sockets and keys of one run.
#pragma once

#include <filesystem>
#include <optional>

#include "bench/sweep/result_folder.h"

namespace penstock {

/// A new folder under $TMPDIR or /tmp, removed with its content. The constructor also removes
/// folders that killed processes left behind.
class PrivateFolder {
 public:
  PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
};

}  // namespace penstock
