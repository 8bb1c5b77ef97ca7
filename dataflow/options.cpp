// SPDX-License-Identifier: Apache-2.0
#include "dataflow/options.h"

#include <cmath>

#include <fmt/format.h>

#include "dataflow/entry.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

[[noreturn]] void not_a(std::string_view what, std::string_view text, std::string_view expected) {
  throw ConfigError("{} is '{}'; expected {}", what, text, expected);
}

struct Unit {
  std::string_view name;
  double factor;
};

double with_unit(std::string_view text, std::span<const Unit> units, std::string_view what,
                 std::string_view expected) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const auto known = std::ranges::find(units, unit, &Unit::name);
  if (error == std::errc() && std::isfinite(value) && value >= 0 && known != units.end()) {
    return value * known->factor;
  }
  not_a(what, text, expected);
}

}  // namespace

std::int64_t parse_integer(std::string_view text, std::string_view what) {
  const std::optional<std::int64_t> value = parse_number<std::int64_t>(text);
  if (!value) not_a(what, text, "a whole number");
  return *value;
}

double parse_real(std::string_view text, std::string_view what) {
  const std::optional<double> value = parse_number<double>(text);
  if (!value || !std::isfinite(*value)) not_a(what, text, "a number");
  return *value;
}

bool parse_flag(std::string_view text, std::string_view what) {
  const std::string word = canonical_name(text);
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  not_a(what, text, "true or false");
}

std::uint64_t parse_bytes(std::string_view text, std::string_view what) {
  static constexpr Unit kUnits[] = {{"", 1},     {"B", 1},        {"kB", 1e3},     {"MB", 1e6},
                                    {"GB", 1e9}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
  const double value = with_unit(text, kUnits, what, "a size such as 512MiB or 2GB");
  if (value > 0x1p62) not_a(what, text, "a size below 2^62 bytes");
  return static_cast<std::uint64_t>(value);
}

Nanoseconds parse_duration(std::string_view text, std::string_view what) {
  static constexpr Unit kUnits[] = {{"", 1e9}, {"s", 1e9},    {"ms", 1e6},  {"us", 1e3},
                                    {"ns", 1}, {"min", 6e10}, {"h", 3.6e12}};
  const double value = with_unit(text, kUnits, what, "a duration such as 250ms, 1.5s or 2min");
  if (value > 1e18) not_a(what, text, "a duration below 30 years");
  return Nanoseconds(static_cast<std::int64_t>(std::llround(value)));
}

std::string size_text(double bytes) {
  if (bytes < 1e4) return fmt::format("{:.0f} bytes", bytes);
  if (bytes < 1e7) return fmt::format("{:.0f} kB", 1e-3 * bytes);
  return bytes < 1e10 ? fmt::format("{:.0f} MB", 1e-6 * bytes)
                      : fmt::format("{:.1f} GB", 1e-9 * bytes);
}

std::string seconds_text(Nanoseconds time) {
  std::string text = std::to_string(to_seconds(time));
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

std::size_t parse_choice(std::string_view text, std::span<const OptionValue> words,
                         std::string_view what) {
  std::string known;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (canonical_name(text) == canonical_name(words[i].name)) return i;
    known += i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    known += words[i].name;
  }
  not_a(what, text, known);
}

std::string component_text(const ComponentText& parts) {
  const auto quoted = [](const std::string& value) {
    if (value.find_first_of(",'\"") == value.npos) return value;
    std::string result = "'";
    for (const char c : value) {
      if (c == '\'') {
        result += "'\"'\"'";  // closes the quote, adds ' in double quotes, reopens the quote
      } else {
        result += c;
      }
    }
    return result + "'";
  };
  std::string text = parts.name;
  char before = ':';
  for (const auto& [key, value] : parts.values) {
    text += before + key;
    if (!value.empty()) text += '=' + quoted(value);
    before = ',';
  }
  return text;
}

ComponentText parse_component(std::string_view text) {
  ComponentText result;
  const std::size_t colon = text.find(':');
  result.name = std::string(text.substr(0, colon));
  if (result.name.empty() || result.name.find('=') != std::string::npos) {
    throw ConfigError("'{}' names no component; expected name[:key=value,...]", text);
  }
  if (colon == std::string_view::npos) return result;
  std::string key, value;
  bool in_value = false;
  char quote = 0;
  const auto finish = [&] {
    if (key.empty()) {
      throw ConfigError("'{}' has an empty option; expected key=value", text);
    }
    if (in_value && value.empty()) {
      throw ConfigError(
          "'{}' has an empty value for '{}'; expected key=value; leave the option out for its "
          "default",
          text, key);
    }
    result.values.emplace_back(std::exchange(key, {}), std::exchange(value, {}));
    in_value = false;
  };
  for (const char c : text.substr(colon + 1)) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        (in_value ? value : key) += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == ',') {
      finish();
    } else if (c == '=' && !in_value) {
      in_value = true;
    } else {
      (in_value ? value : key) += c;
    }
  }
  if (quote != 0) throw ConfigError("'{}' has an open quote", text);
  finish();
  return result;
}

std::vector<std::string> split_component_list(std::string_view text) {
  std::vector<std::string> result;
  std::string piece;
  char quote = 0;
  const auto finish = [&] {
    const std::size_t mark = piece.find_first_of(":=");
    const bool continues = mark != std::string::npos && piece[mark] == '=';
    if (continues && !result.empty()) {
      result.back() += "," + piece;
    } else if (piece.empty()) {
      throw ConfigError("the list '{}' has an empty element", text);
    } else {
      result.push_back(piece);
    }
    piece.clear();
  };
  for (const char c : text) {
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (quote == 0 && c == ',') {
      finish();
      continue;
    }
    piece += c;
  }
  finish();
  return result;
}

Options::Options(std::string_view component, std::span<const OptionSpec> specs,
                 const ComponentText& given)
    : component_(component) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : specs) {
    values_.emplace(spec.name, spec.fallback);
    names.emplace_back(spec.name);
  }
  for (const auto& [key, value] : given.values) {
    std::string name = key, text = value.empty() ? "true" : value;
    std::replace(name.begin(), name.end(), '-', '_');
    if (!values_.contains(name)) {
      if (value.empty() && !names.empty()) {  // a bare word is the value of the first option
        text = key;
        name = names.front();
      } else {
        std::string message = fmt::format("{} has no option '{}'", component_, key);
        // Words of two letters are near to each other without being alike.
        const std::string guess = key.size() > 2 ? nearest_name(key, names) : "";
        if (!guess.empty()) {
          message += fmt::format("; did you mean '{}'?", guess);
        }
        throw ConfigError(message +
                          (names.empty() ? "; it takes none" : "; its options: " + join(names)));
      }
    }
    if (given_.contains(name))
      throw ConfigError("{}: option '{}' is given twice", component_, name);
    values_[name] = text;
    given_[name] = true;
  }
}

const std::string& Options::text(std::string_view name) const {
  const auto found = values_.find(name);
  PENSTOCK_ASSERT(found != values_.end());
  return found->second;
}

bool Options::given(std::string_view name) const { return given_.contains(name); }

std::size_t Options::choice(std::string_view name, std::initializer_list<OptionValue> words) const {
  return parse_choice(text(name), std::span(words.begin(), words.size()),
                      fmt::format("{}: option '{}'", component_, name));
}

}  // namespace penstock
