// SPDX-License-Identifier: Apache-2.0
// Converts the fields of RunConfig to and from text, by type. The table of keys uses these
// functions.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bench/config/flags.h"
#include "bench/config/run_config.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {

template <auto Field>
using FieldType = std::remove_cvref_t<decltype(RunConfig{}.*Field)>;

/// The text form of one field; empty for an optional field that is not set.
template <auto Field>
std::string get(const RunConfig& config) {
  const auto& value = config.*Field;
  using Value = FieldType<Field>;
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
  const std::int64_t parsed = parse_integer(text, flag_of(name));
  if (parsed < Least || !std::in_range<FieldType<Field>>(parsed)) {
    throw ConfigError("{} is {}; expected a whole number of at least {}", flag_of(name), text,
                      Least);
  }
  config.*Field = static_cast<FieldType<Field>>(parsed);
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

/// Sets a field of any type; a whole number is at least 0.
template <auto Field>
void set_value(RunConfig& config, std::string_view name, std::string_view text) {
  using Value = FieldType<Field>;
  if constexpr (std::is_same_v<Value, std::string>) {
    config.*Field = text;
  } else if constexpr (std::is_same_v<Value, bool>) {
    config.*Field = parse_flag(text, flag_of(name));
  } else if constexpr (std::is_integral_v<Value>) {
    set_count<Field, 0>(config, name, text);
  } else {
    set_amount<Field>(config, name, text);
  }
}

/// Sets one of `words`, spelled as in the list. Case and separators of `text` do not matter.
template <std::size_t Count>
void set_word(std::string& value, std::string_view name, std::string_view text,
              const std::string_view (&words)[Count]) {
  const auto* const word = std::ranges::find(words, canonical_name(text), canonical_name);
  if (word == std::end(words)) {
    throw ConfigError("{} is '{}'; expected one of {}", flag_of(name), text,
                      fmt::join(words, ", "));
  }
  value = *word;
}

/// Sets a component: name[:key=value,...]. Throws if the text has another form.
template <auto Field>
void set_component(RunConfig& config, std::string_view, std::string_view text) {
  static_cast<void>(parse_component(text));
  config.*Field = text;
}

}  // namespace penstock
