// SPDX-License-Identifier: Apache-2.0
// Converts the fields of RunConfig to and from text, by type. The table of keys uses these
// functions.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "bench/config/flags.h"
#include "bench/config/run_config.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {

/// The text form of one field; empty for an optional field that is not set.
template <auto Field>
std::string get(const RunConfig& config) {
  const auto& value = config.*Field;
  using Value = std::remove_cvref_t<decltype(value)>;
  if constexpr (std::is_same_v<Value, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (requires { value.has_value(); }) {
    return value.has_value() ? fmt::format("{}", *value) : std::string();
  } else {
    return fmt::format("{}", value);
  }
}

/// Sets a count: a whole number of at least `Least`.
template <auto Field, std::int64_t Least>
void set_count(RunConfig& config, std::string_view name, std::string_view text) {
  auto& value = config.*Field;
  using Value = std::remove_cvref_t<decltype(value)>;
  const std::int64_t parsed = parse_integer(text, flag_of(name));
  if (parsed < Least || static_cast<std::uint64_t>(parsed) >
                            static_cast<std::uint64_t>(std::numeric_limits<Value>::max())) {
    throw ConfigError("{} is {}; expected a whole number of at least {}", flag_of(name), text,
                      Least);
  }
  value = static_cast<Value>(parsed);
}

/// Sets a finite number of at least 0. For optional fields, an empty text means "not set".
template <auto Field>
void set_amount(RunConfig& config, std::string_view name, std::string_view text) {
  auto& value = config.*Field;
  if constexpr (requires { value.reset(); }) {
    if (text.empty()) {
      value.reset();
      return;
    }
  }
  const double parsed = parse_real(text, flag_of(name));
  if (!(parsed >= 0) || std::isinf(parsed)) {
    throw ConfigError("{} is {}; expected a number of at least 0", flag_of(name), text);
  }
  value = parsed;
}

template <auto Field>
void set_flag(RunConfig& config, std::string_view name, std::string_view text) {
  config.*Field = parse_flag(text, flag_of(name));
}

template <auto Field>
void set_text(RunConfig& config, std::string_view, std::string_view text) {
  config.*Field = text;
}

/// Sets one of `words`, spelled as in the list. Case and separators of `text` do not matter.
inline void set_word(std::string& value, std::string_view name, std::string_view text,
                     std::initializer_list<std::string_view> words) {
  const std::string canonical = canonical_name(text);
  std::string known;
  for (const std::string_view word : words) {
    if (canonical_name(word) == canonical) {
      value = word;
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  throw ConfigError("{} is '{}'; expected one of {}", flag_of(name), text, known);
}

/// Sets a component: name[:key=value,...]. Throws if the text has another form.
template <auto Field>
void set_component(RunConfig& config, std::string_view, std::string_view text) {
  static_cast<void>(parse_component(text));
  config.*Field = text;
}

}  // namespace penstock
