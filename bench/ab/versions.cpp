// SPDX-License-Identifier: Apache-2.0
#include "bench/ab/versions.h"

#include <fmt/format.h>

#include <cstdlib>
#include <system_error>

#include "bench/run/processes/child_process.h"
#include "dataflow/error.h"

namespace penstock::ab {
namespace {

constexpr Nanoseconds kGit = std::chrono::minutes(5);

ChildExit git(std::vector<std::string> words, const std::stop_token& stop) {
  words.insert(words.begin(), "git");
  ChildProcess child({.arguments = std::move(words), .timeout = kGit});
  return child.wait(stop);
}

/// What git prints, without the end of its line. Empty: it failed.
std::string said_by_git(std::vector<std::string> words, const std::stop_token& stop) {
  ChildExit exit = git(std::move(words), stop);
  if (exit.code != 0 || exit.signal != 0) return {};
  while (exit.output.ends_with('\n')) exit.output.pop_back();
  return std::move(exit.output);
}

}  // namespace

Checkout::Checkout(const std::string& where, const std::stop_token& stop) : name_(where) {
  std::error_code error;
  if (std::filesystem::is_directory(where, error)) {
    folder_ = std::filesystem::canonical(where);
    if (folder_ == std::filesystem::current_path()) name_ = "this folder";
    return;
  }
  const std::string revision =
      can_start("git")
          ? said_by_git({"rev-parse", "--verify", "--quiet", "--short", where + "^{commit}"}, stop)
          : std::string();
  if (revision.empty()) {
    throw ConfigError(
        "'{}' is neither a folder nor a revision of a git repository that holds this folder; name "
        "one, such as HEAD, origin/main or ../other",
        where);
  }
  if (revision != where) name_ += fmt::format(" ({})", revision);
  holder_.emplace();
  tree_ = holder_->path() / "tree";
  const ChildExit made =
      git({"worktree", "add", "--quiet", "--detach", tree_.native(), revision}, stop);
  if (made.code != 0 || made.signal != 0) {
    throw ConfigError("checking out {}: git {}", name_, made.describe());
  }
  folder_ = tree_ / said_by_git({"rev-parse", "--show-prefix"}, stop);
}

Checkout::~Checkout() {
  if (tree_.empty()) return;
  try {
    git({"worktree", "remove", "--force", tree_.native()}, {});
  } catch (const Error&) {  // its folder goes anyway, and git prunes what it knows of it
  }
}

std::vector<std::string> words_of_side(const std::vector<std::string>& words, bool head) {
  std::vector<std::string> chosen;
  for (const std::string& word : words) {
    std::string text;
    std::size_t at = 0;
    for (std::size_t open = word.find('{'); open != word.npos; open = word.find('{', open + 1)) {
      const std::size_t bar = word.find_first_of("{}|", open + 1);
      if (bar == word.npos || word[bar] != '|') continue;
      const std::size_t close = word.find_first_of("{}|", bar + 1);
      if (close == word.npos || word[close] != '}') continue;
      text += word.substr(at, open - at);
      text += head ? word.substr(bar + 1, close - bar - 1) : word.substr(open + 1, bar - open - 1);
      at = close + 1;
      open = close;
    }
    chosen.push_back(text + word.substr(at));
  }
  return chosen;
}

std::vector<std::string> environment_of(const std::string& virtual_environment) {
  if (virtual_environment.empty()) return {};
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(virtual_environment, error);
  if (!std::filesystem::exists(folder / "bin" / "python", error)) {
    throw ConfigError("'{}' is no virtual environment of Python: it has no bin/python",
                      virtual_environment);
  }
  const char* const path = std::getenv("PATH");
  return {fmt::format("VIRTUAL_ENV={}", folder.native()),
          fmt::format("PATH={}:{}", (folder / "bin").native(), path == nullptr ? "" : path)};
}

}  // namespace penstock::ab
