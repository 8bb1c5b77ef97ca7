// SPDX-License-Identifier: Apache-2.0
// Parses command lines from tables of flags, and formats commands. Flags may be typed in kebab or
// snake case, with one dash or two, as `--key value` or `--key=value`; booleans as --x, --nox or
// --x=true. An unknown flag is refused, with the nearest known flag. A flag of the reference
// benchmarks is refused, with what to use instead.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/config/run_config.h"
#include "dataflow/clock.h"

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
  /// Says before set() if a value changes nothing; otherwise empty.
  std::function<std::string(const std::string&)> note{};
  std::string group = "Options";  ///< the heading in the help text
};

/// "num_batches" -> "--num-batches".
std::string flag_of(std::string_view name);

/// Makes flags with one heading in the help text. Names are in snake case.
struct FlagGroup {
  std::string_view heading = "Options";

  Flag operator()(std::string name, std::string help, std::string fallback,
                  std::function<void(const std::string&)> set, std::string aliases = {}) const {
    return {.name = std::move(name),
            .aliases = std::move(aliases),
            .help = std::move(help),
            .fallback = std::move(fallback),
            .set = std::move(set),
            .group = std::string(heading)};
  }
  // These set `value`, which must outlive the flag; the help text shows its present value.
  Flag text(std::string name, std::string help, std::string& value, std::string aliases = {}) const;
  Flag boolean(std::string name, std::string help, bool& value) const;
  /// A share, typed in percent: above 0 and at most 50.
  Flag percent(std::string name, std::string help, double& value) const;
  /// A time, such as 45s; `fallback` is its present value as a user would type it.
  Flag time(std::string name, std::string help, std::string fallback, Nanoseconds& value) const;
  /// A whole number from `least` to `most`.
  template <typename Value>
  Flag count(std::string name, std::string help, Value& value, std::int64_t least,
             std::int64_t most, std::string aliases = {}) const {
    const auto set = [name, least, most, &value](const std::string& text) {
      value = static_cast<Value>(count_between(text, name, least, most));
    };
    return (*this)(std::move(name), std::move(help), std::to_string(value), set,
                   std::move(aliases));
  }

 private:
  static std::int64_t count_between(const std::string& text, std::string_view name,
                                    std::int64_t least, std::int64_t most);
};

/// The flags of several groups, in this order.
template <typename... Groups>
std::vector<Flag> join_flags(std::vector<Flag> flags, Groups... others) {
  (flags.insert(flags.end(), std::make_move_iterator(others.begin()),
                std::make_move_iterator(others.end())),
   ...);
  return flags;
}

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
/// a flag is given twice, the last value holds, and stderr reports it; also the notes of flags.
/// Returns false after printing the help text to stdout. Throws ConfigError.
bool parse_flags(const VerbHelp& help, std::span<const Flag> flags,
                 std::span<const std::string> arguments,
                 std::vector<std::string>* positional = nullptr);

/// The last value typed for the flag, in any case; for a key of RunConfig, also under its aliases.
/// "" if the value is missing.
std::optional<std::string> typed_value(std::string_view name,
                                       std::span<const std::string> arguments);
bool is_typed(std::string_view name, std::span<const std::string> arguments);

/// Splits text at white space.
std::vector<std::string> split_words(std::string_view text);

/// An argument as a shell word, quoted if necessary.
std::string shell_word(const std::string& text);

/// "penstock VERB ARGUMENTS...".
std::string command_text(std::string_view verb, std::span<const std::string> arguments);

}  // namespace penstock
