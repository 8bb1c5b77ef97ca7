// SPDX-License-Identifier: Apache-2.0
// The two versions of a code that are compared: the folder where a command runs, its words and its
// environment.
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/sweep/private_folder.h"

namespace penstock::ab {

/// A folder with a version of the code. A revision is checked out beside the repository for as long
/// as the object lives.
class Checkout {
 public:
  /// `where`: a folder, or a revision of the git repository that holds the current folder, such as
  /// origin/main. Blocks while files are written. Throws ConfigError if it is neither, or if git
  /// refuses.
  Checkout(const std::string& where, const std::stop_token& stop);
  Checkout(const Checkout&) = delete;
  Checkout& operator=(const Checkout&) = delete;
  ~Checkout();

  /// The folder; of a revision, the one that the current folder is in that revision.
  const std::filesystem::path& folder() const noexcept { return folder_; }
  /// "out/old", "this folder", "origin/main (3d0b4e51)".
  const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  std::filesystem::path folder_, tree_;
  std::optional<PrivateFolder> holder_;
};

/// What runs for one version.
struct Version {
  std::string name;  ///< as results name it
  std::filesystem::path folder;
  std::vector<std::string> command;
  std::vector<std::string> environment;  ///< NAME=VALUE
};

/// The words of one side: `{a|b}` in a word stands for a in the base and for b in the head. Other
/// braces stay. `head`: which side.
std::vector<std::string> words_of_side(const std::vector<std::string>& words, bool head);

/// The environment in which the programs of a virtual environment come first; empty for "". Throws
/// ConfigError if the folder holds none.
std::vector<std::string> environment_of(const std::string& virtual_environment);

}  // namespace penstock::ab
