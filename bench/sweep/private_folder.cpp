// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep/private_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr std::string_view kFolderPrefix = "penstock-sweep-";

/// Removes private folders of killed processes: their locks are free.
void remove_abandoned(const std::filesystem::path& parent) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().native().starts_with(kFolderPrefix)) continue;
    const FolderLock lock(entry.path());
    if (lock.is_ours() && lock.is_of(entry.path())) {
      std::filesystem::remove_all(entry.path(), ignored);
    }
  }
}

}  // namespace

PrivateFolder::PrivateFolder() {
  const char* const given = getenv("TMPDIR");
  const std::string parent = given != nullptr && *given != 0 ? given : "/tmp";
  remove_abandoned(parent);
  do {  // again if another process removes it before it is locked
    std::string name = fmt::format("{}/{}XXXXXX", parent, kFolderPrefix);
    if (mkdtemp(name.data()) == nullptr) {
      throw ConfigError(
          "cannot make a temporary folder '{}': {}; set TMPDIR to a folder that can be written",
          name, std::strerror(errno));
    }
    path_ = name;
    lock_.emplace(path_);
  } while (!lock_->is_ours() || !lock_->is_of(path_));
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;  // a folder that remains does no harm
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace penstock
