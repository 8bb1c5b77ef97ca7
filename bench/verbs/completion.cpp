// SPDX-License-Identifier: Apache-2.0
// penstock completion bash|zsh: prints a shell script that asks this program for verbs, flags and
// components, so that the script fits every version.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "bench/verbs/component_tables.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

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

std::string script(std::string_view form) {
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

int run(const Invocation& invocation) {
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
    throw ConfigError(
        fmt::format("`penstock completion {}`: expected `penstock completion bash` or `... zsh`",
                    join(words, " ")));
  }
  fmt::print("{}", script(words[0] == "bash" ? kBash : kZsh));
  return 0;
}

}  // namespace

extern constinit const VerbEntry completion_verb{
    .name = "completion",
    .summary = "print a script for bash or zsh that completes verbs, flags and components",
    .run = run,
};

}  // namespace penstock
