// SPDX-License-Identifier: Apache-2.0
#include "bench/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace penstock {

FolderLock::FolderLock(const std::filesystem::path& folder)
    : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      is_ours_(flock(folder_.number(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {}

bool FolderLock::is_of(const std::filesystem::path& folder) const {
  struct stat held {
  }, named{};
  return fstat(folder_.number(), &held) == 0 && lstat(folder.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

}  // namespace penstock
