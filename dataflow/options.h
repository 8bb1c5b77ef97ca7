// SPDX-License-Identifier: Apache-2.0
// The options of one component, as typed after its name: `name[:word-or-key=value[,key=value...]]`.
// A component declares them in a table of OptionSpec. Parsing, defaults, help and error messages
// come from that table. One thread reads the options while it makes the component.
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

/// A word that an option takes, if the word needs more explanation than the help text has room for.
struct OptionValue {
  std::string_view name, meaning{};
};

struct OptionSpec {
  std::string_view name, fallback, help;
  std::span<const OptionValue> values{};  ///< listed below the option by `penstock list`
};

/// A component value of the command line, split but not yet checked against a table.
struct ComponentText {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;  ///< a bare word has an empty value
};

/// Splits "zmq-consume:endpoint=ipc://feed,hwm=8" into name and values. Quotes ('...' or "...")
/// keep commas together. Throws ConfigError on text that is not of this form.
ComponentText parse_component(std::string_view text);

/// The text of these parts, with quotes around values that need them.
std::string component_text(const ComponentText& parts);

/// Splits a list of component values at commas. A piece with a '=' before any ':' continues the
/// component before it: "gpu,zmq-consume:hwm=8,bind=true,cpu" has three elements.
std::vector<std::string> split_component_list(std::string_view text);

// A value of an option or a flag. Each function throws ConfigError that names `what`.
std::int64_t parse_integer(std::string_view text, std::string_view what);
double parse_real(std::string_view text, std::string_view what);
bool parse_flag(std::string_view text, std::string_view what);
std::uint64_t parse_bytes(std::string_view text, std::string_view what);  ///< "64MiB", "1GB", "512"
/// "250ms", "1.5s"; a bare number is seconds.
Nanoseconds parse_duration(std::string_view text, std::string_view what);
/// The place of `text` among the names of `words`.
std::size_t parse_choice(std::string_view text, std::span<const OptionValue> words,
                         std::string_view what);

class Options {
 public:
  /// `given` overrides the fallbacks of `specs`. A bare word means `flag=true` if it names an
  /// option, and otherwise the value of the first option. Throws ConfigError that names
  /// `component`.
  Options(std::string_view component, std::span<const OptionSpec> specs,
          const ComponentText& given);

  // Each throws ConfigError if the text is not a value of that kind. A name that the table lacks is
  // a broken invariant.
  std::int64_t integer(std::string_view name) const { return value(parse_integer, name); }
  double real(std::string_view name) const { return value(parse_real, name); }
  bool flag(std::string_view name) const { return value(parse_flag, name); }
  std::uint64_t bytes(std::string_view name) const { return value(parse_bytes, name); }
  Nanoseconds duration(std::string_view name) const { return value(parse_duration, name); }
  const std::string& text(std::string_view name) const;
  /// The place among `words` of the word that is given, as parse_choice() finds it.
  std::size_t choice(std::string_view name, std::initializer_list<OptionValue> words) const;
  bool given(std::string_view name) const;  ///< did the user type it?

 private:
  template <typename Value>
  Value value(Value (*parse)(std::string_view, std::string_view), std::string_view name) const {
    return parse(text(name), component_ + ":" + std::string(name));
  }

  std::string component_;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::string, bool, std::less<>> given_;
};

/// Empty unless the whole text is one decimal number of that type.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) noexcept {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end ? std::optional(value) : std::nullopt;
}

// Quantities in messages.
std::string size_text(double bytes);         ///< "600 bytes", "173 MB", "34.4 GB"
std::string seconds_text(Nanoseconds time);  ///< "0.2 s"

}  // namespace penstock
