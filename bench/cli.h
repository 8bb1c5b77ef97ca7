// SPDX-License-Identifier: Apache-2.0
// The program: its verbs, signals and exit codes.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "bench/run_flags.h"
#include "dataflow/entry.h"

namespace penstock {

/// What a verb gets.
struct Invocation {
  std::string program;  ///< path of this executable, for child processes
  std::vector<std::string> arguments;
  std::stop_token stop;  ///< requested by SIGINT, SIGTERM and SIGHUP
  /// Ends the process at once, with the exit code of the signal that requested `stop`: for work
  /// that has nothing to save.
  std::function<void()> leave = [] {};
};

/// A word behind `penstock`.
struct VerbEntry {
  std::string_view name{}, summary{};
  /// Returns the exit code. Errors may be thrown; main turns them into a message and a code.
  int (*run)(const Invocation&) = nullptr;
};

/// Every verb of this program; generated from the component lists.
const Table<VerbEntry>& verb_table();

/// The whole program, behind main: finds the verb, installs signal handlers, maps errors to exit
/// codes.
int run_command_line(int argc, char** argv);

}  // namespace penstock
