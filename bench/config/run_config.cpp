// SPDX-License-Identifier: Apache-2.0
#include "bench/config/run_config.h"

#include "dataflow/error.h"

namespace penstock {
namespace {

struct Default {
  std::string_view key, text;
};

constexpr Default kTfCnnBenchmarks[] = {{"model", "trivial"},
                                        {"variable_update", "parameter_server"},
                                        {"num_batches", "100"},
                                        {"num_warmup_batches", "10"},
                                        {"display_every", "10"},
                                        {"seed", "1234"},
                                        {"gradient_reduction", "tf_cnn_benchmarks"},
                                        {"resnet_base_lr", "0.128"},
                                        {"weight_decay", "4e-5"}};
// 10 epochs of 50 steps. The first one is discarded by convention, so it is warm-up.
constexpr Default kTensorpack[] = {
    {"model", "resnet50"},         {"batch_size", "64"},
    {"prefetch", "150"},           {"gradient_reduction", "tensorpack"},
    {"init_learning_rate", "0.1"}, {"weight_decay", "1e-4"},
    {"num_batches", "450"},        {"num_warmup_batches", "50"}};
// 10 iterations of 10 batches each, after 10 batches of warm-up.
constexpr Default kHorovod[] = {{"model", "resnet50"},          {"batch_size", "32"},
                                {"variable_update", "horovod"}, {"gradient_reduction", "mean"},
                                {"num_batches", "100"},         {"num_warmup_batches", "10"}};
constexpr Default kKungfu[] = {{"model", "resnet50"},           {"batch_size", "32"},
                               {"variable_update", "sync-sgd"}, {"gradient_reduction", "mean"},
                               {"num_batches", "100"},          {"num_warmup_batches", "10"}};

struct System {
  std::string_view name;
  std::span<const Default> defaults;
};
constexpr System kSystems[] = {{"tf-cnn-benchmarks", kTfCnnBenchmarks},
                               {"tensorpack", kTensorpack},
                               {"horovod", kHorovod},
                               {"kungfu", kKungfu}};

}  // namespace

std::string kebab(std::string_view name) {
  std::string result(name);
  std::ranges::replace(result, '_', '-');
  return result;
}

const ConfigKey& find_config_key(std::string_view name) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    if (canonical_name(key.name) == canonical_name(name)) return key;
    names.emplace_back(key.name);
  }
  const std::string guess = nearest_name(name, names);
  throw ConfigError("unknown key '{}'{}", name,
                    guess.empty() ? "" : "; did you mean '" + guess + "'?");
}

void apply_like(RunConfig& config, std::string_view system) {
  std::vector<std::string> names;
  for (const System& known : kSystems) {
    names.emplace_back(known.name);
    if (known.name != canonical_name(system)) continue;
    for (const Default& value : known.defaults) find_config_key(value.key).set(config, value.text);
    return;
  }
  throw ConfigError("--like is '{}'; expected one of {}", system, join(names));
}

std::vector<std::string> to_flags(const RunConfig& config) {
  std::vector<std::string> flags;
  for (const ConfigKey& key : config_keys()) {
    const std::string value = key.get(config);
    if (!value.empty())
      flags.push_back("--" + kebab(key.name) + "=" + value);  // empty: the default
  }
  return flags;
}

}  // namespace penstock
