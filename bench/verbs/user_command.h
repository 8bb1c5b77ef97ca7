// SPDX-License-Identifier: Apache-2.0
// The user's command in `penstock VERB [FLAGS] -- COMMAND ...`: a child that shares the terminal.
// Its output, its input, the keys of the terminal and its exit code stay as without penstock.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli.h"
#include "bench/run/processes/child_process.h"

namespace penstock {

/// Words before and after `--`; no `command`: there is no `--`.
struct SplitArguments {
  std::vector<std::string> own;
  std::optional<std::vector<std::string>> command;
};
SplitArguments split_at_dashes(const std::vector<std::string>& arguments);

/// Throws ConfigError if the command cannot be started. `verb` is for the message.
void expect_command(std::string_view verb, std::span<const std::string> command);

/// The exit code that a shell would show.
int exit_code_of(const ChildExit& exit);

/// Passes signals on to the command while it exists. Afterwards they do nothing, so that a report
/// is written anyway. Call both methods from the thread that made the object.
class UserCommand {
 public:
  explicit UserCommand(const Invocation& invocation);
  UserCommand(const UserCommand&) = delete;
  UserCommand& operator=(const UserCommand&) = delete;
  ~UserCommand();

  /// Adds that the command shares the terminal and has no time limit.
  ChildProcess& start(ChildCommand command);

 private:
  const Invocation& invocation_;
  std::mutex mutex_;
  std::optional<ChildProcess> child_;
};

}  // namespace penstock
