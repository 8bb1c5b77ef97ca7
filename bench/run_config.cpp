// SPDX-License-Identifier: Apache-2.0
#include "bench/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/model.h"

namespace penstock {
namespace {

std::string flag(std::string_view name) { return "--" + kebab(name); }

/// The text form of one field, by its type.
template <auto Field>
std::string get(const RunConfig& config) {
  const auto& value = config.*Field;
  using Value = std::remove_cvref_t<decltype(value)>;
  if constexpr (std::is_same_v<Value, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else {
    return fmt::format("{}", value);
  }
}

/// Counts: whole numbers of at least `Least`.
template <auto Field, std::int64_t Least>
void set_count(RunConfig& config, std::string_view name, std::string_view text) {
  auto& value = config.*Field;
  using Value = std::remove_cvref_t<decltype(value)>;
  const std::int64_t parsed = parse_integer(text, flag(name));
  if (parsed < Least || static_cast<std::uint64_t>(parsed) >
                            static_cast<std::uint64_t>(std::numeric_limits<Value>::max())) {
    throw ConfigError(
        fmt::format("{} is {}; expected a whole number of at least {}", flag(name), text, Least));
  }
  value = static_cast<Value>(parsed);
}

void set_word(std::string& value, std::string_view name, std::string_view text,
              std::initializer_list<std::string_view> words) {
  const std::string wanted = canonical_name(text);
  if (std::find(words.begin(), words.end(), wanted) == words.end()) {
    std::string known;
    for (const std::string_view word : words)
      known += (known.empty() ? "" : ", ") + std::string(word);
    throw ConfigError(fmt::format("{} is '{}'; expected one of {}", flag(name), text, known));
  }
  value = wanted;
}

void set_data_dir(RunConfig& config, std::string_view, std::string_view text) {
  config.data_dir = text;
}

void set_on_bad_sample(RunConfig& config, std::string_view name, std::string_view text) {
  const ComponentText parts = parse_component(text);
  std::string ignored;
  set_word(ignored, name, parts.name, {"default", "fail", "skip"});
  for (const auto& [key, value] : parts.values) {
    if (parts.name != "skip" || key != "limit" ||
        parse_integer(value, "--on-bad-sample limit") < 0) {
      throw ConfigError(
          fmt::format("--on-bad-sample is '{}'; expected fail, skip or skip:limit=K", text));
    }
  }
  config.on_bad_sample = text;
}

template <auto Field>
void set_component(RunConfig& config, std::string_view, std::string_view text) {
  static_cast<void>(parse_component(text));  // throws on text of another form
  config.*Field = text;
}

void set_model(RunConfig& config, std::string_view name, std::string_view text) {
  set_component<&RunConfig::model>(config, name, text);
  // One name for each model: rows are told apart by their text.
  if (const ModelEntry* model = match_entry(model_table(), text)) config.model = model->name;
}

void set_precision(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.precision, name, text, {"fp32", "tf32", "fp16", "bf16"});
}

void set_order(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.order, name, text, {"relaxed", "strict"});
}

void set_extend_window(RunConfig& config, std::string_view name, std::string_view text) {
  config.extend_window = parse_flag(text, flag(name));
}

void set_timeout(RunConfig& config, std::string_view name, std::string_view text) {
  config.timeout = std::chrono::duration<double>(parse_duration(text, flag(name))).count();
  if (!(config.timeout > 0))
    throw ConfigError("--timeout is 0; expected a time above 0, such as 30s");
}

void set_ewma(RunConfig& config, std::string_view name, std::string_view text) {
  config.display_perf_ewma = parse_real(text, flag(name));
  if (config.display_perf_ewma < 0 || config.display_perf_ewma > 1) {
    throw ConfigError(fmt::format("--display-perf-ewma is {}; expected 0 to 1", text));
  }
}

constexpr ConfigKey kKeys[] = {
    {"fake_location", "", false, "where batches come from: a feeder of `penstock list`",
     get<&RunConfig::fake_location>, set_component<&RunConfig::fake_location>},
    {"model", "", false, "what trains on them: a model of `penstock list`", get<&RunConfig::model>,
     set_model},
    {"variable_update", "", false, "who holds the weights and adds the gradients",
     get<&RunConfig::variable_update>, set_component<&RunConfig::variable_update>},
    {"device", "", false,
     "what computes: emulated[:img_per_s=R|preset=NAME,copy=memcpy|none,exchange=none|ms=T]",
     get<&RunConfig::device>, set_component<&RunConfig::device>},
    {"optimizer", "", false, "how gradients become weights: an optimizer of `penstock list`",
     get<&RunConfig::optimizer>, set_component<&RunConfig::optimizer>},
    {"precision", "", false, "of activations: fp32, tf32, fp16 or bf16, as the device has it",
     get<&RunConfig::precision>, set_precision},
    {"compute_threads", "num_intra_threads", false,
     "threads of one device that is made of cores; 0: usable cores / --num-gpus",
     get<&RunConfig::compute_threads>, set_count<&RunConfig::compute_threads, 0>},
    {"num_gpus", "", false, "devices, of whatever kind", get<&RunConfig::num_gpus>,
     set_count<&RunConfig::num_gpus, 1>},
    {"batch_size", "batch", false, "images per device and step; 0: the model's own default",
     get<&RunConfig::batch_size>, set_count<&RunConfig::batch_size, 0>},
    {"num_batches", "", false, "measured steps", get<&RunConfig::num_batches>,
     set_count<&RunConfig::num_batches, 1>},
    {"num_warmup_batches", "", false, "steps before the measured ones",
     get<&RunConfig::num_warmup_batches>, set_count<&RunConfig::num_warmup_batches, 0>},
    {"data_dir", "data", false,
     "folder of class folders of JPEGs; default data/train, made if absent",
     get<&RunConfig::data_dir>, set_data_dir},
    {"on_bad_sample", "", false,
     "fail, skip or skip:limit=K; default: files fail, messages are skipped",
     get<&RunConfig::on_bad_sample>, set_on_bad_sample},
    {"order", "", false, "relaxed: batches go to whoever asks first; strict: reproducible order",
     get<&RunConfig::order>, set_order},
    {"prefetch", "", false, "slots of the host ring, in batches", get<&RunConfig::prefetch>,
     set_count<&RunConfig::prefetch, 1>},
    {"device_slots", "", false, "slots of each device's ring, in batches",
     get<&RunConfig::device_slots>, set_count<&RunConfig::device_slots, 1>},
    {"feeder_threads", "datasets_num_private_threads", false, "decoding threads; 0: usable cores",
     get<&RunConfig::feeder_threads>, set_count<&RunConfig::feeder_threads, 0>},
    {"timeout", "", false, "how long an outside producer may stay silent, such as 30s",
     get<&RunConfig::timeout>, set_timeout},
    {"seed", "tf_random_seed", false, "of all random numbers", get<&RunConfig::seed>,
     set_count<&RunConfig::seed, 0>},
    {"extend_window", "", true, "measure again while batches made before the window still help",
     get<&RunConfig::extend_window>, set_extend_window},
    {"display_every", "", false, "steps between two lines of the table",
     get<&RunConfig::display_every>, set_count<&RunConfig::display_every, 1>},
    {"display_perf_ewma", "", false, "weight of the newest step in a moving mean; 0: plain mean",
     get<&RunConfig::display_perf_ewma>, set_ewma},
};

struct Default {
  std::string_view key, text;
};

constexpr Default kTfCnnBenchmarks[] = {
    {"model", "trivial"},    {"variable_update", "parameter_server"},
    {"num_batches", "100"},  {"num_warmup_batches", "10"},
    {"display_every", "10"}, {"seed", "1234"}};
// 10 epochs of 50 steps, of which readers discard the first.
constexpr Default kTensorpack[] = {{"model", "resnet50"},
                                   {"batch_size", "64"},
                                   {"prefetch", "150"},
                                   {"num_batches", "450"},
                                   {"num_warmup_batches", "50"}};
// 10 iterations of 10 batches each, after 10 batches of warm-up.
constexpr Default kHorovod[] = {{"model", "resnet50"},
                                {"batch_size", "32"},
                                {"variable_update", "horovod"},
                                {"num_batches", "100"},
                                {"num_warmup_batches", "10"}};
constexpr Default kKungfu[] = {{"model", "resnet50"},
                               {"batch_size", "32"},
                               {"variable_update", "sync-sgd"},
                               {"num_batches", "100"},
                               {"num_warmup_batches", "10"}};

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
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

std::span<const ConfigKey> config_keys() { return kKeys; }

const ConfigKey& find_config_key(std::string_view name) {
  std::vector<std::string> names;
  for (const ConfigKey& key : kKeys) {
    if (canonical_name(key.name) == canonical_name(name)) return key;
    names.emplace_back(key.name);
  }
  const std::string guess = nearest_name(name, names);
  throw ConfigError(fmt::format("unknown key '{}'{}", name,
                                guess.empty() ? "" : "; did you mean '" + guess + "'?"));
}

void apply_like(RunConfig& config, std::string_view system) {
  std::vector<std::string> names;
  for (const System& known : kSystems) {
    names.emplace_back(known.name);
    if (known.name != canonical_name(system)) continue;
    for (const Default& value : known.defaults) find_config_key(value.key).set(config, value.text);
    return;
  }
  throw ConfigError(fmt::format("--like is '{}'; expected one of {}", system, join(names)));
}

std::vector<std::string> to_flags(const RunConfig& config) {
  std::vector<std::string> flags;
  for (const ConfigKey& key : kKeys) {
    const std::string value = key.get(config);
    if (!value.empty()) flags.push_back(flag(key.name) + "=" + value);  // empty: what it is anyway
  }
  return flags;
}

}  // namespace penstock
