// SPDX-License-Identifier: Apache-2.0
// Command lines from tables of flags. Flags may be typed in kebab or snake case, with one dash or
// two,
// `--key value` or `--key=value`; booleans as --x, --nox or --x=true. Unknown flags are refused
// with the nearest known one; flags of the reference benchmarks that mean nothing here, with what
// to use.
#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "bench/run_config.h"
#include "dataflow/entry.h"

namespace penstock {

struct Flag {
  std::string name{};     ///< any case; shown in kebab case
  std::string aliases{};  ///< separated by spaces
  std::string help{};
  std::string fallback{};  ///< as shown in the help text
  bool boolean = false;
  std::function<void(const std::string&)> set{};  ///< may throw ConfigError
  std::string group = "Options";
};

/// What a verb gets.
struct Invocation {
  std::string program;  ///< path of this executable, for child processes
  std::vector<std::string> arguments;
  std::stop_token stop;  ///< requested by SIGINT, SIGTERM and SIGHUP
  /// Ends the process at once, with the exit code of the signal that requested `stop`: for work
  /// that has nothing to save.
  std::function<void()> leave = [] {};
};

/// Parses `arguments`; words that are no flags go to `positional`, or are refused where it is null.
/// Of a flag that is given twice the last value holds, and stderr says so. Returns false after
/// printing the help text to stdout. Throws ConfigError.
bool parse_flags(std::string_view verb, std::string_view summary, std::span<const Flag> flags,
                 std::span<const std::string> arguments,
                 std::vector<std::string>* positional = nullptr);

/// A flag for each key of RunConfig, writing to `config`, and --like, which is applied first.
std::vector<Flag> run_flags(RunConfig& config);
/// Applies --like, if any argument is that, before the flags that override its defaults; and where
/// --data-dir is typed and no --fake-location, the feeder that reads it. Throws ConfigError for
/// flags that exclude each other.
void apply_like_of(RunConfig& config, std::span<const std::string> arguments);

/// Was the flag typed, in whatever case?
bool is_typed(std::string_view name, std::span<const std::string> arguments);

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
