// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/shard_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxNames = 1'000'000;

[[noreturn]] void refuse_braces(std::string_view text, const std::string& problem) {
  throw ConfigError(
      "the list of data files '{}' {}; expected text such as train-{{000..146}}.tar or "
      "{{a,b}}.tar; correct --data-dir",
      text, problem);
}

/// The alternatives of "000..002" or "a,b,c"; empty for other texts.
std::vector<std::string> alternatives(std::string_view whole, std::string_view inside) {
  std::vector<std::string> found;
  if (const std::size_t dots = inside.find(".."); dots != std::string_view::npos) {
    const std::string_view low_digits = inside.substr(0, dots),
                           high_digits = inside.substr(dots + 2);
    const std::optional<std::uint64_t> low = parse_number<std::uint64_t>(low_digits),
                                       high = parse_number<std::uint64_t>(high_digits);
    if (!low || !high) refuse_braces(whole, "has a range that is not one of two numbers");
    if (*high < *low) refuse_braces(whole, "has a range that ends before it begins");
    if (*high - *low >= kMaxNames) refuse_braces(whole, "stands for more than a million files");
    for (std::uint64_t i = *low; i <= *high; ++i) {
      found.push_back(fmt::format("{:0{}}", i, low_digits.size()));
    }
    return found;
  }
  std::size_t begin = 0;
  for (std::size_t comma = inside.find(','); comma != std::string_view::npos;
       comma = inside.find(',', begin)) {
    found.emplace_back(inside.substr(begin, comma - begin));
    begin = comma + 1;
  }
  if (!found.empty()) found.emplace_back(inside.substr(begin));
  return found;
}

/// A name such as "train-00003-of-00010": its set as a list with braces, its number, and the count.
struct Numbered {
  std::string set;
  std::uint64_t number = 0, count = 0;
};

std::optional<Numbered> parse_numbered(std::string_view name) {
  const std::size_t of = name.rfind("-of-");
  if (of == std::string_view::npos) return std::nullopt;
  const std::size_t dash = name.rfind('-', of - 1);
  if (of == 0 || dash == std::string_view::npos) return std::nullopt;
  std::size_t end = of + 4;
  while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
  const std::string_view digits = name.substr(dash + 1, of - dash - 1);
  const std::optional<std::uint64_t> number = parse_number<std::uint64_t>(digits),
                                     count = parse_number<std::uint64_t>(
                                         name.substr(of + 4, end - of - 4));
  if (!number || !count || *count == 0) return std::nullopt;
  std::string numbers(digits.size(), '0');
  if (*count > 1) numbers = fmt::format("{{{}..{:0{}}}}", numbers, *count - 1, digits.size());
  std::string set(name.substr(0, dash + 1));
  set.append(numbers).append(name.substr(of));
  return Numbered{std::move(set), *number, *count};
}

constexpr std::string_view kTraining = "train", kValidation = "validation";

/// Groups numbered shards by set. Empty if another shard is among them.
std::map<std::string, std::vector<std::string>> sets_of(const std::vector<std::string>& paths) {
  std::map<std::string, std::vector<std::string>> sets;
  for (const std::string& path : paths) {
    const std::optional<Numbered> numbered = parse_numbered(fs::path(path).filename().native());
    if (!numbered) return {};
    sets[numbered->set].push_back(path);
  }
  return sets;
}

[[noreturn]] void refuse_sets(const std::string& place, const std::string& first,
                              const std::string& second) {
  throw ConfigError(
      "the data in '{}' are shards of more than one set ('{}' and '{}'); expected one, or {}-* and "
      "{}-*; name one with braces, such as --data-dir '{}/{}'",
      place, first, second, kTraining, kValidation, place, first);
}

/// The shards of one set, which must be complete. If there are a training and a validation set,
/// `plan` decides which.
std::vector<std::string> one_set(const DataPlan& plan, std::vector<std::string> paths) {
  const std::string& place = plan.directory;
  const auto sets = sets_of(paths);
  if (sets.empty()) return paths;
  auto chosen = sets.begin();
  if (const auto second = std::next(chosen); second != sets.end()) {
    const bool has_both = sets.size() == 2 && chosen->first.starts_with(kTraining) &&
                          second->first.starts_with(kValidation);
    if (!has_both) refuse_sets(place, chosen->first, second->first);
    if (!plan.augment) chosen = second;
  }
  std::set<std::uint64_t> numbers;
  std::uint64_t count = 0;
  for (const std::string& path : chosen->second) {
    const Numbered numbered = *parse_numbered(fs::path(path).filename().native());
    numbers.insert(numbered.number);
    count = numbered.count;
  }
  std::string missing;
  std::size_t shown = 0;
  for (std::uint64_t i = 0; i < count && shown < 4; ++i) {
    if (numbers.contains(i)) continue;
    missing += shown == 3 ? std::string(", ...") : fmt::format("{}{}", shown > 0 ? ", " : "", i);
    ++shown;
  }
  if (missing.empty()) return chosen->second;
  throw ConfigError(
      "the data in '{}' are {} of {} shards of '{}'; expected all; missing: {}; fetch them, or "
      "name only the existing shards, with braces",
      place, numbers.size(), count, chosen->first, missing);
}

}  // namespace

std::vector<std::string> expand_braces(std::string_view text) {
  std::vector<std::string> names{""};
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t open = std::min(text.find('{', begin), text.size());
    const std::string_view plain = text.substr(begin, open - begin);
    if (plain.find('}') != std::string_view::npos)
      refuse_braces(text, "has a closing brace without an opening one");
    for (std::string& name : names) name += plain;
    if (open == text.size()) break;
    const std::size_t close = text.find('}', open);
    if (close == std::string_view::npos)
      refuse_braces(text, "has an opening brace without a closing one");
    const std::string_view inside = text.substr(open + 1, close - open - 1);
    if (inside.find('{') != std::string_view::npos) refuse_braces(text, "has braces in braces");
    const std::vector<std::string> choices = alternatives(text, inside);
    if (choices.empty()) refuse_braces(text, "has braces without a range or a list");
    if (choices.size() > kMaxNames / names.size()) {
      refuse_braces(text, "stands for more than a million files");
    }
    std::vector<std::string> longer;
    longer.reserve(names.size() * choices.size());
    for (const std::string& name : names) {
      for (const std::string& choice : choices) longer.push_back(name + choice);
    }
    names = std::move(longer);
    begin = close + 1;
  }
  return names;
}

std::string validation_set(const std::string& folder) {
  bool trains = false;
  std::string validation;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    const std::optional<Numbered> numbered = parse_numbered(name);
    if (!numbered) continue;
    trains = trains || name.starts_with(kTraining);
    if (name.starts_with(kValidation)) validation = numbered->set;
  }
  return trains ? validation : "";
}

FileList list_shards(const DataPlan& plan, bool (*accepts)(std::string_view name),
                     std::string_view format, std::string_view example) {
  const std::string& place = plan.directory;
  const std::string expected =
      fmt::format("; expected {} files such as {}; check --data-dir", format, example);
  const auto refuse = [&](const std::string& path, const std::string& problem) {
    throw ConfigError("the data '{}' {}{}", path, problem, expected);
  };
  std::vector<std::string> paths;
  std::error_code error;
  if (fs::is_directory(place, error)) {
    try {
      for (const fs::directory_entry& entry : fs::directory_iterator(place)) {
        const std::string name = entry.path().filename().native();
        if (name.front() == '.' || name.front() == '_' || !accepts(name)) continue;
        if (!entry.is_directory()) paths.push_back(entry.path().native());
      }
    } catch (const fs::filesystem_error& failure) {
      refuse(place, "cannot be read: " + failure.code().message());
    }
    std::ranges::sort(paths);
    if (paths.empty()) refuse(place, "are a folder without such files");
    paths = one_set(plan, std::move(paths));
  } else {
    paths = expand_braces(place);
    for (const std::string& path : paths) {
      if (!fs::exists(path, error)) refuse(path, "do not exist");
    }
  }
  FileList shards;
  for (const std::string& path : paths) shards.add(path);
  return shards;
}

}  // namespace penstock::datasets
