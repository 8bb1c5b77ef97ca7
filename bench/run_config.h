// SPDX-License-Identifier: Apache-2.0
// Everything that decides what a run does, as one flat struct whose keys are the same on the
// command line (kebab case), in JSON and in CSV (snake case). The text form of each key
// round-trips.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct RunConfig {
  // Components: name[:key=value,...].
  std::string fake_location = "gpu";
  std::string model = "resnet50";
  std::string variable_update = "replicated";
  std::string device = "emulated";
  std::string optimizer = "sgd";

  std::string precision = "fp32";    ///< of activations: fp32, tf32, fp16 or bf16
  std::int32_t compute_threads = 0;  ///< of a device made of cores; 0: cores / num_gpus

  std::int32_t num_gpus = 1;             ///< devices of any kind
  std::int32_t batch_size = 0;           ///< per device; 0: the model's own
  std::int64_t num_batches = 100;        ///< steps in the window
  std::int64_t num_warmup_batches = 10;  ///< steps before it
  std::string data_dir;                  ///< empty: data/train, made if absent
  std::string on_bad_sample = "default";
  std::string order = "relaxed";
  std::int32_t prefetch = 3;        ///< slots of the host ring
  std::int32_t device_slots = 2;    ///< slots of each device's ring
  std::int32_t feeder_threads = 0;  ///< 0: as many as usable cores
  double timeout = 30;              ///< seconds that an outside producer may stay silent
  std::uint64_t seed = 1234;
  bool extend_window = false;  ///< measure again while the reserve drains
  std::int32_t display_every = 10;
  double display_perf_ewma = 0;  ///< 0: plain mean

  bool operator==(const RunConfig&) const = default;
};

/// One key of RunConfig.
struct ConfigKey {
  std::string_view name;     ///< snake case
  std::string_view aliases;  ///< other spellings of the reference benchmarks, separated by spaces
  bool boolean = false;
  std::string_view help;
  std::string (*get)(const RunConfig&);
  void (*parse)(RunConfig&, std::string_view name, std::string_view text);

  /// Throws ConfigError naming the flag when the text is no such value or out of range.
  void set(RunConfig& config, std::string_view text) const { parse(config, name, text); }
};

std::span<const ConfigKey> config_keys();

/// Throws ConfigError for an unknown key, with the nearest one.
const ConfigKey& find_config_key(std::string_view name);

/// The defaults of another system: tf_cnn_benchmarks, tensorpack, horovod or kungfu.
void apply_like(RunConfig& config, std::string_view system);

/// Flags that give back `config`, for a child process.
std::vector<std::string> to_flags(const RunConfig& config);

/// "num_batches" -> "num-batches".
std::string kebab(std::string_view name);

}  // namespace penstock
