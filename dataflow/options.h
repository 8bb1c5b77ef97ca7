// SPDX-License-Identifier: Apache-2.0
// The options of one component, as typed after its name: `name[:word-or-key=value[,key=value...]]`.
// A component declares them in a table of OptionSpec; parsing, defaults, help and error messages
// come from that table. Options are read while a component is made, by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

/// A word that an option takes, where the words need saying more than its help has room for.
struct OptionValue {
  std::string_view name, meaning;
};

struct OptionSpec {
  std::string_view name, fallback, help;
  std::span<const OptionValue> values{};  ///< listed below the option by `penstock list`
};

/// A component value of the command line, taken apart but not yet checked against any table.
struct ComponentText {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;  ///< a bare word has an empty value
};

/// Splits "zmq-consume:endpoint=ipc://feed,hwm=8" into name and values. Quotes ('...' or "...")
/// keep commas together. Throws ConfigError on text that is not of this form.
ComponentText parse_component(std::string_view text);

/// The text of such parts, with quotes where values need them.
std::string component_text(const ComponentText& parts);

/// Splits a list of component values at commas; a piece whose first of ':' and '=' is '=' continues
/// the component before it: "gpu,zmq-consume:hwm=8,bind=true,cpu" has three elements.
std::vector<std::string> split_component_list(std::string_view text);

class Options {
 public:
  /// `given` overrides the fallbacks of `specs`. A bare word stands for `flag=true` when it names
  /// an option, and for the value of the first option otherwise. Throws ConfigError naming
  /// `component`.
  Options(std::string_view component, std::span<const OptionSpec> specs,
          const ComponentText& given);

  // Each throws ConfigError when the text is not such a value. Asking for a name that the table
  // lacks is a broken invariant.
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::uint64_t bytes(std::string_view name) const;   ///< "64MiB", "1GB", "512"
  Nanoseconds duration(std::string_view name) const;  ///< "250ms", "1.5s"; a bare number is seconds
  const std::string& text(std::string_view name) const;
  bool given(std::string_view name) const;  ///< was it typed, rather than defaulted?

 private:
  std::string component_;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::string, bool, std::less<>> given_;
};

// The same conversions for one text; nullopt-free: each throws ConfigError naming `what`.
std::int64_t parse_integer(std::string_view text, std::string_view what);
double parse_real(std::string_view text, std::string_view what);
bool parse_flag(std::string_view text, std::string_view what);
std::uint64_t parse_bytes(std::string_view text, std::string_view what);
Nanoseconds parse_duration(std::string_view text, std::string_view what);

}  // namespace penstock
