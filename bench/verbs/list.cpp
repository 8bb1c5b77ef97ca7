// SPDX-License-Identifier: Apache-2.0
// penstock list [KIND [NAME]]: lists components with their options, known components that are not
// built, with the reason, and unsupported flags of other systems, with what to use instead.
#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "bench/config/foreign_flags.h"
#include "bench/verbs/component_tables.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr std::string_view kRefused = "refused flag (of tf_cnn_benchmarks and tensorpack)";

/// What to list; empty words: everything.
struct Arguments {
  std::string kind, name;
  bool options = false;

  bool wants_kind(std::string_view title) const {
    return kind.empty() || canonical_name(kind) == word_of_kind(title);
  }
};

template <typename Entry>
void print_entry(const Entry& entry, bool with_options) {
  fmt::print("  {:<22} {}\n", entry.name, entry.summary);
  const std::vector<std::string> names = names_of(entry);
  if (names.size() > 1) fmt::print("  {:<22} also {}\n", "", join(std::span(names).subspan(1)));
  if constexpr (requires { entry.options; }) {
    if (!with_options) return;
    for (const OptionSpec& option : entry.options) {
      fmt::print("      {:<18} {}{}\n", option.name, option.help,
                 option.fallback.empty() ? "" : fmt::format(" [{}]", option.fallback));
      for (const OptionValue& value : option.values) {
        fmt::print("        {:<24} {}\n", value.name, value.meaning);
      }
    }
  }
}

template <typename Entry>
void print_table(const Table<Entry>& table, const Arguments& wanted) {
  if (!wanted.wants_kind(table.kind)) return;
  if (!wanted.name.empty()) return print_entry(find_entry(table, wanted.name), true);
  fmt::print("{}\n", table.kind);
  for (const Entry* entry : table.entries) print_entry(*entry, wanted.options);
  for (const AbsentEntry& absent : table.absent) {
    fmt::print("  {:<22} -- {}\n", absent.name, absent.reason);
  }
  fmt::print("\n");
}

/// Throws ConfigError for an unknown kind.
void check_kind(const Arguments& wanted) {
  std::vector<std::string> kinds;
  for_each_component_table([&](const auto& table) { kinds.push_back(word_of_kind(table.kind)); });
  kinds.push_back(word_of_kind(kRefused));
  if (wanted.kind.empty() || std::ranges::any_of(kinds, [&](const std::string& kind) {
        return kind == canonical_name(wanted.kind);
      })) {
    return;
  }
  throw ConfigError(fmt::format("unknown kind '{}'; expected one of {}", wanted.kind, join(kinds)));
}

int run(const Invocation& invocation) {
  bool all = false;
  const Flag flags[] = {FlagGroup().boolean("all", "list the options of all components", all)};
  std::vector<std::string> words;
  if (!parse_flags(
          {.verb = "list",
           .summary = "Lists components, data-set formats, reports and refused flags. With a kind, "
                      "such as feeder, it lists their options too.",
           .examples = "list\nlist feeder\nlist feeder queue",
           .arguments = "[KIND [NAME]]"},
          flags, invocation.arguments, &words)) {
    return 0;
  }
  if (words.size() > 2) {
    throw ConfigError(
        "`penstock list` takes a kind and a name, such as `penstock list feeder "
        "queue`, and got '" +
        join(words, " ") + "'");
  }
  words.resize(2);
  const Arguments wanted{words[0], words[1], all || !words[0].empty()};
  check_kind(wanted);
  for_each_component_table([&](const auto& table) { print_table(table, wanted); });
  if (!wanted.wants_kind(kRefused)) return 0;
  if (!wanted.options) {
    fmt::print("`penstock list KIND` and `penstock list KIND NAME` list options as well.\n");
    return 0;
  }
  if (wanted.name.empty()) fmt::print("{}\n", kRefused);
  for (const ForeignFlag& flag : foreign_flags()) {
    const bool shown = wanted.name.empty() || kebab(wanted.name) == kebab(flag.name);
    if (shown) fmt::print("  {:<22} {}\n", "--" + kebab(flag.name), flag.advice);
  }
  return 0;
}

}  // namespace

extern constinit const VerbEntry list_verb{
    .name = "list",
    .summary = "list components and their options",
    .run = run,
};

}  // namespace penstock
