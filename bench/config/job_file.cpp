// SPDX-License-Identifier: Apache-2.0
#include "bench/config/job_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <sstream>

#include "bench/config/flags.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;

/// The number of the first line, from line `first` on, whose text before '=' is `word`; 0: none.
/// CLI11's parser does not keep line numbers.
int line_of(std::string_view word, std::string_view text, int first = 1) {
  std::istringstream in{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    line.resize(std::min(line.find('='), line.size()));
    std::erase_if(line, [](unsigned char c) { return std::isspace(c) != 0 || c == '"'; });
    if (number >= first && line == word) return number;
  }
  return 0;
}

}  // namespace

JobFile::JobFile(std::string_view verb, const IsVerb& is_verb,
                 std::vector<std::string>& arguments) {
  const auto end = std::ranges::find(arguments, "--");
  const auto found = std::find_if(arguments.begin(), end, [](const std::string& word) {
    return word == "--config" || word.starts_with("--config=");
  });
  if (found == end) return;
  const bool has_value = found->size() > std::string_view("--config").size();
  if (!has_value && found + 1 == end) throw ConfigError("--config needs a value: a TOML file");
  path_ = has_value ? found->substr(found->find('=') + 1) : *(found + 1);
  const auto place = arguments.erase(found, found + (has_value ? 1 : 2));
  std::vector<std::string> flags = read(verb, is_verb);
  std::erase_if(flags, [&](const std::string& flag) {
    return is_typed(flag.substr(2, flag.find('=') - 2), arguments);
  });
  arguments.insert(place, flags.begin(), flags.end());
}

std::vector<std::string> JobFile::read(std::string_view verb, const IsVerb& is_verb) {
  std::string text;
  try {
    text = InputFile(path_.c_str()).text(kMostBytes);
  } catch (const DataError& error) {
    throw ConfigError(
        "--config: cannot read '{}': {}; expected a TOML file with flags, such as `batch-size = "
        "64`",
        path_, error.what());
  }
  std::istringstream in(text);
  std::vector<std::string> flags;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(in)) {
    const std::string section = join(item.parents, ".");
    if (!section.empty() && !is_verb(section)) {
      throw ConfigError(
          "{}, line {}: section [{}] is no verb; expected one such as [run] or [sweep]", path_,
          line_of(fmt::format("[{}]", section), text), section);
    }
    if (item.name == "++" || item.name == "--") continue;  // a section begins or ends
    if (!section.empty() && canonical_name(section) != canonical_name(verb)) continue;
    const std::string flag = "--" + kebab(item.name);
    const int begin = section.empty() ? 1 : line_of(fmt::format("[{}]", section), text);
    lines_.push_back({flag, line_of(item.name, text, begin)});
    flags.push_back(fmt::format("{}={}", flag, join(item.inputs, ",")));
  }
  return flags;
}

std::string JobFile::place_of(std::string_view message) const {
  for (const Line& line : lines_) {
    for (std::size_t at = message.find(line.flag); at != std::string_view::npos;
         at = message.find(line.flag, at + 1)) {
      const std::size_t next = at + line.flag.size();
      const bool longer =
          next < message.size() &&
          (message[next] == '-' || std::isalnum(static_cast<unsigned char>(message[next])) != 0);
      if (!longer) {
        return fmt::format("; {} is set in {}, line {}", line.flag, path_, line.number);
      }
    }
  }
  return "";
}

}  // namespace penstock
