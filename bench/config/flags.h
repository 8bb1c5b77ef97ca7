// SPDX-License-Identifier: Apache-2.0
// Parses command lines from tables of flags. Flags may be typed in kebab or snake case, with one
// dash or two, as `--key value` or `--key=value`; booleans as --x, --nox or --x=true. An unknown
// flag is refused, with the nearest known flag. A flag of the reference benchmarks is refused, with
// what to use instead.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The heading for flags taken over from other systems.
inline constexpr char kOtherSystems[] = "Flags of other systems";

struct Flag {
  std::string name{};     ///< any case; shown in kebab case
  std::string aliases{};  ///< separated by spaces
  std::string help{};
  std::string fallback{};  ///< as shown in the help text
  bool boolean = false;
  std::function<void(const std::string&)> set{};  ///< may throw ConfigError
  std::string group = "Options";                  ///< the heading in the help text
};

/// The parts of a verb's help text besides its flags.
struct VerbHelp {
  std::string_view verb{}, summary{};
  /// Names of the flags that --help shows, separated by spaces; --help-all shows all flags. Empty:
  /// --help shows all flags too.
  std::string_view common{};
  /// Commands without the program's name, one per line.
  std::string_view examples{};
  std::string_view arguments{};  ///< how the help text shows words that are no flags: "FILE"
};

/// Parses `arguments`. Words that are no flags go to `positional`, or are refused if it is null. If
/// a flag is given twice, the last value holds, and stderr reports it. Returns false after printing
/// the help text to stdout. Throws ConfigError.
bool parse_flags(const VerbHelp& help, std::span<const Flag> flags,
                 std::span<const std::string> arguments,
                 std::vector<std::string>* positional = nullptr);

/// The last value typed for the flag, in any case; for a key of RunConfig, also under its aliases.
/// "" if the value is missing.
std::optional<std::string> typed_value(std::string_view name,
                                       std::span<const std::string> arguments);
bool is_typed(std::string_view name, std::span<const std::string> arguments);

}  // namespace penstock
