// SPDX-License-Identifier: Apache-2.0
#include "bench/update_flags.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "bench/config_values.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/placement.h"

namespace penstock {
namespace {

/// Adds an option to the update's value. Throws ConfigError where that is another update.
void add_option(RunConfig& config, std::string_view flag, std::string_view update,
                std::string_view option) {
  std::string& text = config.variable_update;
  if (canonical_name(parse_component(text).name) != canonical_name(update)) {
    throw ConfigError(fmt::format(
        "{} is of --variable-update {}, and that is '{}'; pass --variable-update {}:{}, or leave "
        "{} out",
        flag, update, text, update, option, flag));
  }
  text += fmt::format("{}{}", text.find(':') == std::string::npos ? ':' : ',', option);
}

void set_consistency(RunConfig& config, const std::string& text) {
  std::string word;
  set_word(word, "variable_consistency", text, {"strong", "relaxed"});
  if (word == "strong") return;  // every update's, unless told otherwise
  add_option(config, "--variable-consistency", "replicated", "consistency=relaxed");
}

void set_staged(RunConfig& config, const std::string& text) {
  if (!parse_flag(text, "--staged-vars")) return;
  add_option(config, "--staged-vars", "parameter_server", "staged=true");
}

void set_placement(RunConfig& config, const std::string& text) {
  static_cast<void>(parse_placement(text, "--ps-placement"));  // throws on another word
  add_option(config, "--ps-placement", "parameter_server", "placement=" + text);
}

void set_kungfu(RunConfig& config, const std::string& text) {
  set_word(config.variable_update, "kungfu", text, {"sync-sgd", "async-sgd", "sma"});
}

}  // namespace

std::vector<Flag> update_flags(RunConfig& config) {
  const auto flag = [&config](std::string name, std::string help, std::string fallback,
                              void (*set)(RunConfig&, const std::string&)) {
    return Flag{.name = std::move(name),
                .help = std::move(help),
                .fallback = std::move(fallback),
                .set = [&config, set](const std::string& text) { set(config, text); },
                .group = "Run"};
  };
  std::vector<Flag> flags{
      flag("variable_consistency",
           "strong, or relaxed: the same as --variable-update replicated:consistency=relaxed",
           "strong", set_consistency),
      flag("staged_vars", "the same as --variable-update parameter_server:staged=true", "false",
           set_staged),
      flag("ps_placement",
           "first, greedy or split: the same as --variable-update parameter_server:placement=...",
           "first", set_placement),
      flag("kungfu", "sync-sgd, async-sgd or sma: the same as --variable-update with that", "",
           set_kungfu)};
  flags[1].boolean = true;
  flags[3].aliases = "kf_optimizer";
  return flags;
}

}  // namespace penstock
