// SPDX-License-Identifier: Apache-2.0
#include "bench/verbs/user_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "dataflow/error.h"

namespace penstock {

SplitArguments split_at_dashes(const std::vector<std::string>& arguments) {
  const auto dashes = std::ranges::find(arguments, "--");
  SplitArguments split{.own = {arguments.begin(), dashes}, .command = {}};
  if (dashes != arguments.end()) split.command.emplace(dashes + 1, arguments.end());
  return split;
}

void expect_command(std::string_view verb, std::span<const std::string> command) {
  const std::string expected = fmt::format("expected `penstock {} -- python3 train.py`", verb);
  if (command.empty()) {
    throw ConfigError("{} has no command to start after `--`; {}", verb, expected);
  }
  const std::string& program = command.front();
  if (can_start(program)) return;
  const bool is_path = program.find('/') != std::string::npos;
  std::error_code error;
  std::string reason = is_path ? "there is no such file" : "no folder of PATH has such a program";
  if (std::filesystem::exists(program, error)) reason = "it is not an executable file";
  const std::string advice = program.ends_with(".py")
                                 ? fmt::format("; start it with `python3 {}`", program)
                                 : fmt::format("; {}", expected);
  throw ConfigError("{} cannot start '{}': {}{}", verb, program, reason, advice);
}

int exit_code_of(const ChildExit& exit) { return exit.signal != 0 ? 128 + exit.signal : exit.code; }

UserCommand::UserCommand(const Invocation& invocation) : invocation_(invocation) {
  invocation.redirect_signals([this](int signal, bool by_terminal) {
    const std::lock_guard lock(mutex_);  // a child that starts gets it as soon as it has started
    if (child_ && !by_terminal) child_->send(signal);
  });
}

UserCommand::~UserCommand() {
  invocation_.redirect_signals([](int, bool) {});
}

ChildProcess& UserCommand::start(ChildCommand command) {
  command.timeout = std::chrono::hours(24 * 365);
  command.shares_terminal = true;
  const std::lock_guard lock(mutex_);
  return child_.emplace(std::move(command));
}

}  // namespace penstock
