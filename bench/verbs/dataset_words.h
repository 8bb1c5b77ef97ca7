// SPDX-License-Identifier: Apache-2.0
// The subcommands of `penstock dataset`, and helpers for their flags.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "bench/cli.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {

// Each function returns the exit code.
int convert_word(const Invocation& invocation);
int check_word(const Invocation& invocation);
int index_word(const Invocation& invocation);

/// A flag with a whole number between two bounds.
template <typename Value>
Flag count_flag(const std::string& name, const std::string& help, Value& value, std::int64_t least,
                std::int64_t most) {
  const auto set = [name, least, most, &value](const std::string& text) {
    const std::int64_t parsed = parse_integer(text, "--" + name);
    if (parsed < least || parsed > most) {
      throw ConfigError(fmt::format("--{} is {}; expected a whole number from {} to {}", name, text,
                                    least, most));
    }
    value = static_cast<Value>(parsed);
  };
  return {.name = name, .help = help, .fallback = fmt::format("{}", value), .set = set};
}

inline Flag word_flag(const std::string& name, const std::string& help, std::string& value) {
  return {.name = name,
          .help = help,
          .fallback = value,
          .set = [name, &value](const std::string& text) {
            if (text.empty()) throw ConfigError("--" + name + " is empty; expected a path");
            value = text;
          }};
}

inline Flag boolean_flag(const std::string& name, const std::string& help, bool& value) {
  return {
      .name = name,
      .help = help,
      .fallback = "false",
      .boolean = true,
      .set = [name, &value](const std::string& text) { value = parse_flag(text, "--" + name); }};
}

}  // namespace penstock
