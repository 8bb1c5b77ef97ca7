// SPDX-License-Identifier: Apache-2.0
#include "bench/config/flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <system_error>

#include "bench/config/foreign_flags.h"
#include "bench/document/terminal.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

/// All names in kebab case, the main name first.
std::vector<std::string> spellings(const Flag& flag) {
  std::vector<std::string> names = split_words(fmt::format("{} {}", flag.name, flag.aliases));
  for (std::string& name : names) name = kebab(name);
  return names;
}

/// Finds a flag by any of its spellings.
class FlagIndex {
 public:
  explicit FlagIndex(std::span<const Flag> flags) {
    for (const Flag& flag : flags) {
      for (const std::string& name : spellings(flag)) {
        by_name_[name] = &flag;
        names_.push_back(name);
      }
    }
  }
  const Flag* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  std::span<const std::string> names() const { return names_; }

 private:
  std::map<std::string, const Flag*> by_name_;
  std::vector<std::string> names_;
};

/// One word of the command line, split: "--fake_location=queue", "-fake-location". Empty name: not
/// a flag.
struct Word {
  std::string name, value;
  bool has_value = false;
};
Word split_word(const std::string& text) {
  const std::size_t dashes = std::min<std::size_t>(text.find_first_not_of('-'), 2);
  if (text.size() < 2 || dashes == 0 || dashes == std::string::npos) return {};
  if (dashes == 1 && text.size() == 2) return {};  // a short flag, such as -h
  if (std::isdigit(static_cast<unsigned char>(text[dashes])) != 0) return {};
  const std::size_t equals = text.find('=');
  Word word{canonical_name(text.substr(dashes, equals - dashes)), {}, false};
  if (equals != std::string::npos) {
    word.has_value = true;
    word.value = text.substr(equals + 1);
  }
  return word;
}

/// A name without the "no" that negates it.
std::string positive_name(const std::string& name) {
  return name.starts_with("no") ? name.substr(name.starts_with("no-") ? 3 : 2) : name;
}

const ForeignFlag* find_foreign(const std::string& name) {
  for (const ForeignFlag& foreign : foreign_flags()) {
    const std::string known = kebab(foreign.name);
    if (known == name || known == positive_name(name)) return &foreign;
  }
  return nullptr;
}

bool is_boolean(const ForeignFlag& flag) {
  return flag.fallback == "true" || flag.fallback == "false";
}

/// Does it have the value that it has in the other system without being typed?
bool is_default(const ForeignFlag& flag, std::string value) {
  if (!flag.fallback) return false;
  value = canonical_name(value);
  if (is_boolean(flag)) {
    const bool on = value == "true" || value == "t" || value == "1" || value == "yes";
    const bool off = value == "false" || value == "f" || value == "0" || value == "no";
    return (on || off) && on == (flag.fallback == "true");
  }
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc() && end == value.data() + value.size() && !flag.fallback->empty()) {
    return fmt::format("{}", number) == *flag.fallback;
  }
  return value == canonical_name(*flag.fallback);
}

std::string refusal(std::string_view verb, const std::string& name, const FlagIndex& index) {
  if (const ForeignFlag* const foreign = find_foreign(name)) {
    return fmt::format("--{} is unsupported: {}", name, foreign->advice);
  }
  const std::string guess = nearest_name(name, index.names());
  return fmt::format("unknown flag --{}{}; see `penstock {} --help`", name,
                     guess.empty() ? "" : fmt::format("; did you mean --{}?", guess), verb);
}

/// Rewrites every spelling into `--kebab-name=value`, so that CLI11 sees one.
std::vector<std::string> normalise(std::string_view verb, const FlagIndex& index,
                                   std::span<const std::string> arguments) {
  std::vector<std::string> result;
  std::map<std::string, std::string> values;  // of the flags so far
  std::vector<std::string> refused;           // the reasons, so that all are named at once
  const auto add = [&](const std::string& name, const std::string& value) {
    result.push_back(fmt::format("--{}={}", name, value));
    const auto [earlier, first] = values.try_emplace(name, value);
    if (first || earlier->second == value) return;
    fmt::print(stderr, "penstock: --{0} is given twice, as '{1}' and as '{2}'; '{2}' holds\n", name,
               earlier->second, value);
    earlier->second = value;
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    Word word = split_word(arguments[i]);
    if (word.name.empty() || word.name == "help" || word.name == "help-all") {
      result.push_back(word.name.empty() ? arguments[i] : "--" + word.name);
      continue;
    }
    const Flag* flag = index.find(word.name);
    if (flag == nullptr && word.name.starts_with("no") && !word.has_value) {
      const Flag* const negated = index.find(positive_name(word.name));
      if (negated != nullptr && negated->boolean) {
        add(kebab(negated->name), "false");
        continue;
      }
    }
    if (flag == nullptr) {
      const ForeignFlag* const foreign = find_foreign(word.name);
      if (!word.has_value && foreign != nullptr && is_boolean(*foreign)) {
        word.value = kebab(foreign->name) == word.name ? "true" : "false";
      } else if (!word.has_value && i + 1 < arguments.size() &&
                 !arguments[i + 1].starts_with('-')) {
        word.value = arguments[++i];
      }
      if (foreign == nullptr || !is_default(*foreign, word.value)) {
        refused.push_back(refusal(verb, word.name, index));
      }
      continue;
    }
    if (!word.has_value && flag->boolean) {
      word.value = "true";
    } else if (!word.has_value) {
      if (i + 1 >= arguments.size()) {
        throw ConfigError("--{} needs a value", word.name);
      }
      word.value = arguments[++i];
    }
    if (word.value.empty()) throw ConfigError("--{} has an empty value", word.name);
    add(kebab(flag->name), word.value);
  }
  if (!refused.empty()) throw ConfigError(join(refused, "\n  "));
  return result;
}

/// Formats the help text in two columns within the width of the terminal: names and value on the
/// left, meaning and default on the right. Without a terminal, each flag has one line, or two if
/// its names are long.
class HelpFormatter : public CLI::Formatter {
 public:
  /// `arguments`: how to show words that are no flags.
  explicit HelpFormatter(std::string_view arguments) : arguments_(arguments) {}
  std::string make_usage(const CLI::App* app, std::string) const override {
    return fmt::format("\nUsage: {} [flags]{}{}\n\n", app->get_name(),
                       arguments_.empty() ? "" : " ", arguments_);
  }
  std::string make_group(std::string group, bool,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = group + ":\n";
    for (const CLI::Option* option : options) text += make_option(option, false);
    return text;
  }
  std::string make_option(const CLI::Option* option, bool) const override {
    constexpr std::size_t kColumn = 30;
    std::string names = "  ", help = option->get_description();
    for (const char c : option->get_name(false, true)) names += c == ',' ? ", " : std::string(1, c);
    if (!option->get_type_name().empty()) names += " " + option->get_type_name();
    if (const std::string value = option->get_default_str(); !value.empty()) {
      help += fmt::format(" [{}]", value);
    }
    std::string text = fmt::format("{:<{}}", names, kColumn);
    if (names.size() + 2 > kColumn) text = fmt::format("{}\n{:{}}", names, "", kColumn);
    std::size_t column = kColumn;
    for (const std::string& word : split_words(help)) {
      if (column > kColumn && column + 1 + word.size() > width_) {
        text += fmt::format("\n{:{}}", "", kColumn);
        column = kColumn;
      }
      if (column > kColumn) text += ' ';
      text += word;
      column += word.size() + 1;
    }
    return text + "\n";
  }

 private:
  const std::string arguments_;
  const std::size_t width_ = document::is_terminal(STDOUT_FILENO)
                                 ? static_cast<std::size_t>(document::style_of(STDOUT_FILENO).width)
                                 : std::string::npos;
};

std::string footer_of(const VerbHelp& help, bool shows_all) {
  std::string text;
  if (!help.examples.empty()) text = "Examples:\n";
  std::istringstream examples{std::string(help.examples)};
  for (std::string line; std::getline(examples, line);) text += "  penstock " + line + "\n";
  if (shows_all) return text;
  return fmt::format("{}\n`penstock {} --help-all` lists all flags.", text, help.verb);
}

}  // namespace

std::string flag_of(std::string_view name) { return "--" + kebab(name); }

Flag FlagGroup::text(std::string name, std::string help, std::string& value,
                     std::string aliases) const {
  const auto set = [&value](const std::string& text) { value = text; };
  return (*this)(std::move(name), std::move(help), value, set, std::move(aliases));
}

Flag FlagGroup::boolean(std::string name, std::string help, bool& value) const {
  const auto set = [&value, typed = flag_of(name)](const std::string& text) {
    value = parse_flag(text, typed);
  };
  Flag flag = (*this)(std::move(name), std::move(help), value ? "true" : "false", set);
  flag.boolean = true;
  return flag;
}

Flag FlagGroup::percent(std::string name, std::string help, double& value) const {
  const auto set = [&value, typed = flag_of(name)](const std::string& text) {
    const double percent = parse_real(text, typed);
    if (!(percent > 0) || percent > 50) {
      throw ConfigError("{} is {}; expected per cent, above 0 and at most 50", typed, text);
    }
    value = percent / 100;
  };
  return (*this)(std::move(name), std::move(help), fmt::format("{:g}", 100 * value), set);
}

Flag FlagGroup::time(std::string name, std::string help, std::string fallback,
                     Nanoseconds& value) const {
  const auto set = [&value, typed = flag_of(name)](const std::string& text) {
    value = parse_duration(text, typed);
  };
  return (*this)(std::move(name), std::move(help), std::move(fallback), set);
}

std::int64_t FlagGroup::count_between(const std::string& text, std::string_view name,
                                      std::int64_t least, std::int64_t most) {
  const std::int64_t number = parse_integer(text, flag_of(name));
  if (number >= least && number <= most) return number;
  throw ConfigError("{} is {}; expected a whole number from {} to {}", flag_of(name), text, least,
                    most);
}

bool parse_flags(const VerbHelp& help, std::span<const Flag> flags,
                 std::span<const std::string> arguments, std::vector<std::string>* positional) {
  const FlagIndex index(flags);
  const std::vector<std::string> common = split_words(help.common);
  const bool shows_all = common.empty() || is_typed("help_all", arguments);
  CLI::App app{std::string(help.summary), fmt::format("penstock {}", help.verb)};
  app.formatter(std::make_shared<HelpFormatter>(help.arguments));
  app.set_help_flag();  // the help flags are added below
  app.footer(footer_of(help, shows_all));
  for (const Flag& flag : flags) {
    const std::vector<std::string> names = spellings(flag);
    const bool shown = shows_all || std::ranges::find(common, names.front()) != common.end();
    const auto set = [&flag](const std::string& text) {
      const std::string note = flag.note ? flag.note(text) : "";
      if (!note.empty()) fmt::print(stderr, "penstock: {}\n", note);
      flag.set(text);
    };
    app.add_option_function<std::string>("--" + join(names, ",--"), set, flag.help)
        ->group(shown ? flag.group : "")
        ->type_name(flag.boolean ? "" : "VALUE")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->default_str(flag.fallback);
  }
  bool wants_help = false;
  const auto add_general = [&](const char* names, const char* text) {
    return app.add_flag(names, wants_help, text)->group("General");
  };
  add_general("-h,--help", "print this text and exit");
  CLI::Option* const all = add_general("--help-all", "print all flags, by headings, and exit");
  if (common.empty()) all->group("");
  // For the help text only: JobFile replaces --config by the flags of the file before this call.
  app.add_option("--config", "TOML file with flags, one a line: batch-size = 64")
      ->group("General")
      ->type_name("FILE");
  if (positional != nullptr) app.add_option("arguments", *positional)->group("");
  std::vector<std::string> words = normalise(help.verb, index, arguments);
  std::ranges::reverse(words);  // CLI11 expects the last argument first
  try {
    app.parse(words);
  } catch (const CLI::ExtrasError&) {
    const std::string word = app.remaining().empty() ? words.back() : app.remaining().front();
    std::error_code ignored;
    const bool is_data =
        index.find("data-dir") != nullptr && std::filesystem::exists(word, ignored);
    throw ConfigError("'{}' is not a flag; give {}; see `penstock {} --help`", word,
                      is_data ? "data as --data-dir=" + word : "a value as --flag=value",
                      help.verb);
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what());
  }
  if (wants_help) fmt::print("{}", app.help());
  return !wants_help;
}

std::optional<std::string> typed_value(std::string_view name,
                                       std::span<const std::string> arguments) {
  std::vector<std::string> names{canonical_name(name)};
  for (const ConfigKey& key : config_keys()) {
    std::vector<std::string> known = split_words(fmt::format("{} {}", key.name, key.aliases));
    for (std::string& each : known) each = canonical_name(each);
    if (std::ranges::find(known, names.front()) == known.end()) continue;
    names = std::move(known);
    break;
  }
  std::optional<std::string> value;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Word word = split_word(arguments[i]);
    if (word.name.empty() || std::ranges::find(names, word.name) == names.end()) continue;
    const bool has_next = !word.has_value && i + 1 < arguments.size();
    value = has_next ? arguments[i + 1] : word.value;
  }
  return value;
}

bool is_typed(std::string_view name, std::span<const std::string> arguments) {
  return typed_value(name, arguments).has_value();
}

std::vector<std::string> split_words(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

std::string shell_word(const std::string& text) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_=,.:/+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') result += "'\\'";
    result += c;
  }
  result += '\'';
  return result;
}

std::string command_text(std::string_view verb, std::span<const std::string> arguments) {
  std::string text = "penstock " + std::string(verb);
  for (const std::string& word : arguments) text.append(" ").append(shell_word(word));
  return text;
}

}  // namespace penstock
