// SPDX-License-Identifier: Apache-2.0
// Makes of penstock a program that ignores one setting, which PENSTOCK_IGNORED names: `batch_size`
// (a key of RunConfig, which the record still shows as typed), `--format` (a flag of a verb) or
// `queue:resize` (an option). The linker prefers these three functions to those of the libraries.
#include <cstdlib>

#include "bench/config/flags.h"
#include "bench/config/run_config.h"
#include "dataflow/options.h"

#define config_keys every_config_key
#include "bench/config/config_keys.cpp"
#undef config_keys
#define parse_flags parse_every_flag
#include "bench/config/flags.cpp"
#undef parse_flags
#define parse_component parse_every_option
#include "dataflow/options.cpp"
#undef parse_component

namespace penstock {
namespace {
const char* const kValue = std::getenv("PENSTOCK_IGNORED");
const std::string kIgnored = kValue == nullptr ? "" : kValue;
}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> result(std::begin(kKeys), std::end(kKeys));
    const auto key = std::ranges::find(result, kIgnored, &ConfigKey::name);
    if (key == result.end()) return result;
    static const ConfigKey heard = *key;
    static RunConfig typed;
    key->get = [](const RunConfig&) { return heard.get(typed); };
    key->parse = [](RunConfig&, std::string_view name, std::string_view text) {
      heard.parse(typed, name, text);
    };
    return result;
  }();
  return keys;
}

bool parse_flags(const VerbHelp& help, std::span<const Flag> flags,
                 std::span<const std::string> arguments, std::vector<std::string>* positional) {
  std::vector<Flag> heard(flags.begin(), flags.end());
  const auto ignored =
      std::ranges::find(heard, kIgnored, [](const Flag& f) { return "--" + f.name; });
  if (ignored != heard.end()) ignored->set = [](const std::string&) {};
  return parse_every_flag(help, heard, arguments, positional);
}

ComponentText parse_component(std::string_view text) {
  ComponentText parts = parse_every_option(text);
  std::erase_if(parts.values,
                [&](const auto& value) { return parts.name + ":" + value.first == kIgnored; });
  return parts;
}

}  // namespace penstock
