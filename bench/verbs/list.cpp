// SPDX-License-Identifier: Apache-2.0
// penstock list [KIND [NAME]]: lists components with their options, known components that are not
// built, with the reason, and unsupported flags of other systems, with what to use instead.
//
// penstock completion bash|zsh: prints a shell script that asks this program for verbs, flags and
// components, so that the script fits every version.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli.h"
#include "bench/config/foreign_flags.h"
#include "bench/report/report.h"
#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/shard_stream.h"
#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/collectives/all_reduce.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

/// The command-line word for a kind: data-set-format for "data set format (--to)".
std::string word_of_kind(std::string_view title) {
  std::string word = canonical_name(title.substr(0, title.find(" (")));
  std::ranges::replace(word, ' ', '-');
  return word;
}

/// Calls `visit` with each table.
template <typename Visit>
void for_each_component_table(const Visit& visit) {
  visit(feeder_table());
  visit(source_table());
  visit(datasets::decompressor_table());
  visit(decoder_table());
  visit(model_table());
  visit(backend_table());
  visit(update_table());
  visit(optimizer_table());
  visit(collectives::all_reduce_table());
  visit(datasets::dataset_writer_table());
  visit(report::report_table());
}

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
void print_table(const Table<Entry>& table, const Arguments& arguments) {
  if (!arguments.wants_kind(table.kind)) return;
  if (!arguments.name.empty()) return print_entry(find_entry(table, arguments.name), true);
  fmt::print("{}\n", table.kind);
  for (const Entry* entry : table.entries) print_entry(*entry, arguments.options);
  for (const AbsentEntry& absent : table.absent) {
    fmt::print("  {:<22} -- {}\n", absent.name, absent.reason);
  }
  fmt::print("\n");
}

/// Throws ConfigError for an unknown kind.
void check_kind(const Arguments& arguments) {
  std::vector<std::string> kinds;
  for_each_component_table([&](const auto& table) { kinds.push_back(word_of_kind(table.kind)); });
  kinds.push_back(word_of_kind(kRefused));
  if (arguments.kind.empty() || std::ranges::count(kinds, canonical_name(arguments.kind)) > 0) {
    return;
  }
  throw ConfigError("unknown kind '{}'; expected one of {}", arguments.kind, join(kinds));
}

int run_list(const Invocation& invocation) {
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
        "`penstock list` takes a kind and a name, such as `penstock list feeder queue`, and got "
        "'{}'",
        join(words, " "));
  }
  words.resize(2);
  const Arguments arguments{words[0], words[1], all || !words[0].empty()};
  check_kind(arguments);
  for_each_component_table([&](const auto& table) { print_table(table, arguments); });
  if (!arguments.wants_kind(kRefused)) return 0;
  if (!arguments.options) {
    fmt::print("`penstock list KIND` and `penstock list KIND NAME` list options as well.\n");
    return 0;
  }
  if (arguments.name.empty()) fmt::print("{}\n", kRefused);
  for (const ForeignFlag& flag : foreign_flags()) {
    const bool shown = arguments.name.empty() || kebab(arguments.name) == kebab(flag.name);
    if (shown) fmt::print("  {:<22} {}\n", "--" + kebab(flag.name), flag.advice);
  }
  return 0;
}

/// Sets `verb` to the words before the cursor up to the first flag, and `kind` to the kind of
/// component that the flag before the cursor takes.
constexpr std::string_view kBash = R"bash(# bash completion for penstock
_penstock() {{
  local program=${{COMP_WORDS[0]}} word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  local verb=() kind='' words='' i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ ${{COMP_WORDS[i]}} == [a-z]* ]] || break
    verb+=("${{COMP_WORDS[i]}}")
  done
  if [[ $word == '=' ]]; then word=''; elif [[ $before == '=' ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  case $before in
{0}  esac
  if [[ -n $kind ]]; then
    words=$("$program" list "$kind" 2>/dev/null | sed -n '/^  [^ ]* *-- /d; s/^  \([a-z][^ ]*\) .*/\1/p')
  elif [[ $word == -* ]]; then
    words=$("$program" "${{verb[@]}}" --help-all 2>/dev/null | sed -n 's/^  \(-h, \)\?\(--[a-z0-9-]*\).*/\2/p')
  elif [[ $COMP_CWORD == 1 || ${{verb[*]}} == dataset ]]; then
    words=$("$program" "${{verb[@]}}" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p')
  elif [[ ${{verb[*]}} == list ]]; then
    words='{1}'
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _penstock penstock
)bash";

constexpr std::string_view kZsh = R"zsh(#compdef penstock
# zsh completion for penstock
_penstock() {{
  local program=$words[1] before=$words[CURRENT-1] kind='' word
  local -a verb lines
  for word in ${{words[2,CURRENT-1]}}; do
    [[ $word == [a-z]* ]] || break
    verb+=($word)
  done
  [[ $PREFIX == --*=* ]] && before=${{PREFIX%%=*}} && compset -P '*='
  case $before in
{0}  esac
  if [[ -n $kind ]]; then
    lines=(${{(f)"$($program list $kind 2>/dev/null | sed -n '/^  [^ ]* *-- /d; s/:/ /g; s/^  \([a-z][^ ]*\)  *\(.*\)/\1:\2/p')"}})
  elif [[ $PREFIX == -* ]]; then
    lines=(${{(f)"$($program $verb --help-all 2>/dev/null | sed -n 's/:/ /g; s/^  \(--[a-z0-9-]*\)\(.*\)/\1:\2/p')"}})
  elif [[ $CURRENT == 2 || $verb == dataset ]]; then
    lines=(${{(f)"$($program $verb --help 2>/dev/null | sed -n 's/:/ /g; s/^  \([a-z][a-z-]*\)  *\(.*\)/\1:\2/p')"}})
  elif [[ $verb == list ]]; then
    lines=({1})
  else
    _files
    return
  fi
  _describe penstock lines
}}
if [[ $funcstack[1] == _penstock ]]; then _penstock "$@"; else compdef _penstock penstock; fi
)zsh";

/// The flag in a kind's title, as in "feeder (--fake-location)"; empty: none.
std::string flag_of_kind(std::string_view title) {
  const std::size_t begin = title.find("(--");
  return begin == std::string_view::npos
             ? ""
             : std::string(title.substr(begin + 1, title.find(')') - begin - 1));
}

std::string completion_script(std::string_view form) {
  std::string cases, kinds;
  for_each_component_table([&](const auto& table) {
    const std::string kind = word_of_kind(table.kind);
    std::string flags = flag_of_kind(table.kind);
    kinds += (kinds.empty() ? "" : " ") + kind;
    if (flags.empty()) return;
    for (const ConfigKey& key : config_keys()) {
      const bool has_alias = !key.aliases.empty() && "--" + kebab(key.name) == flags;
      if (has_alias) flags += "|--" + kebab(key.aliases);
    }
    cases += fmt::format("    {}) kind={} ;;\n", flags, kind);
  });
  return fmt::format(fmt::runtime(form), cases, kinds);
}

int run_completion(const Invocation& invocation) {
  std::vector<std::string> words;
  if (!parse_flags({.verb = "completion",
                    .summary = "Prints a script that lets a shell complete verbs, flags and "
                               "components: bash or zsh.",
                    .examples = "completion bash > ~/.local/share/bash-completion/completions/"
                                "penstock\ncompletion zsh > ~/.zfunc/_penstock",
                    .arguments = "SHELL"},
                   {}, invocation.arguments, &words)) {
    return 0;
  }
  if (words.size() != 1 || (words[0] != "bash" && words[0] != "zsh")) {
    throw ConfigError("`penstock completion {}`: expected `penstock completion bash` or `... zsh`",
                      join(words, " "));
  }
  fmt::print("{}", completion_script(words[0] == "bash" ? kBash : kZsh));
  return 0;
}

}  // namespace

extern constinit const VerbEntry list_verb{
    .name = "list",
    .summary = "list components and their options",
    .run = run_list,
};

extern constinit const VerbEntry completion_verb{
    .name = "completion",
    .summary = "print a script for bash or zsh that completes verbs, flags and components",
    .run = run_completion,
};

}  // namespace penstock
