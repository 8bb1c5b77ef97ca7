// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep/sweep.h"

#include <algorithm>
#include <array>
#include <span>

#include "bench/dataset/default_dataset.h"
#include "dataflow/clock.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

/// Keys whose values have the form name[:key=value,...].
constexpr std::array<std::string_view, 6> kComponentKeys = {
    "fake_location", "model", "variable_update", "device", "optimizer", "on_bad_sample"};
/// A larger sweep takes too long for any user, so it is most likely a mistake.
constexpr std::size_t kMaxConfigurations = 10000;

std::vector<std::string> split_values(const ConfigKey& key, std::string_view list) {
  if (std::ranges::find(kComponentKeys, key.name) != kComponentKeys.end())
    return split_component_list(list);
  std::vector<std::string> values;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = list.find(',', begin);
    values.emplace_back(list.substr(begin, comma - begin));
    if (comma == std::string_view::npos) break;
    begin = comma + 1;
  }
  if (values.size() > 1 && std::count(values.begin(), values.end(), "") > 0) {
    throw ConfigError(
        "--{} is '{}', a list with an empty element; expected values separated by commas",
        kebab(key.name), list);
  }
  return values;
}

/// The entry that `text` names, after a check of its option names. Null if this program lacks it;
/// then sets `reason`, unless it is already set.
template <typename Entry>
const Entry* find_component(const Table<Entry>& table, const std::string& text,
                            std::string& reason) {
  const ComponentText parts = parse_component(text);
  try {
    const Entry& entry = find_entry(table, parts.name);
    std::span<const OptionSpec> specs;
    if constexpr (requires { entry.options; }) specs = entry.options;
    static_cast<void>(Options(parts.name, specs, parts));  // throws on unknown names
    return &entry;
  } catch (const Unavailable& error) {
    if (reason.empty()) reason = error.what();
    return nullptr;
  }
}

}  // namespace

void Sweep::set(std::string_view name, std::string_view list) {
  const ConfigKey& key = find_config_key(name);
  std::vector<std::string> values;
  for (const std::string& text : split_values(key, list)) {
    RunConfig scratch;
    key.set(scratch, text);
    const std::string value = key.get(scratch);
    if (std::find(values.begin(), values.end(), value) != values.end()) {
      throw ConfigError("--{} lists '{}' twice; each value makes one row", kebab(key.name), value);
    }
    values.push_back(value);
  }
  axes_[std::string(key.name)] = std::move(values);
}

std::vector<RunConfig> Sweep::expand(const RunConfig& base) const {
  std::vector<RunConfig> configurations{base};
  const std::span<const ConfigKey> keys = config_keys();
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {  // the first key varies fastest
    const auto axis = axes_.find(key->name);
    if (axis == axes_.end()) continue;
    if (configurations.size() * axis->second.size() > kMaxConfigurations) {
      throw ConfigError("the lists make more than {} configurations; shorten some",
                        kMaxConfigurations);
    }
    std::vector<RunConfig> expanded;
    for (const RunConfig& configuration : configurations) {
      for (const std::string& value : axis->second) {
        key->set(expanded.emplace_back(configuration), value);
      }
    }
    configurations = std::move(expanded);
  }
  return configurations;
}

std::string unavailable_reason(const RunConfig& config) {
  if (!config.train_dir.empty()) {
    throw ConfigError(
        "--train-dir is '{}': the runs of a sweep would go on from each other's checkpoints; leave "
        "it out, or use `penstock run`",
        config.train_dir);
  }
  std::string reason;
  find_component(feeder_table(), config.fake_location, reason);
  find_component(model_table(), config.model, reason);
  find_component(update_table(), config.variable_update, reason);
  find_component(optimizer_table(), config.optimizer, reason);
  if (const BackendEntry* backend = find_component(backend_table(), config.device, reason)) {
    try {  // checks option values, and that the machine has such a device
      SteadyClock clock;
      const ComponentText parts = parse_component(config.device);
      static_cast<void>(backend->make(Options(parts.name, backend->options, parts), clock));
    } catch (const Unavailable& error) {
      if (reason.empty()) reason = error.what();
    }
  }
  dataset::refuse_missing_data(config);
  return reason;
}

}  // namespace penstock
