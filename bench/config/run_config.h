// SPDX-License-Identifier: Apache-2.0
// All settings of a run in one flat struct. A key has the same name on the command line (kebab
// case), in JSON and in CSV (snake case). The text form of each key round-trips.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/entry.h"
#include "dataflow/options.h"

namespace penstock {

struct RunConfig {
  // Components: name[:key=value,...].
  std::string fake_location = "gpu";
  std::string model = "resnet50";
  std::string variable_update = "replicated";
  std::string device = "emulated";
  std::string optimizer = "sgd";

  std::string precision = "fp32";    ///< of activations: fp32, tf32, fp16 or bf16
  std::int32_t compute_threads = 0;  ///< of a CPU device; 0: cores / num_gpus

  std::int32_t num_gpus = 1;       ///< devices of any kind, per process
  std::int32_t num_processes = 0;  ///< started by a launcher; 0: as many as it started
  std::int32_t batch_size = 0;     ///< per device; 0: the model's default
  std::int32_t image_size = 0;     ///< height and width; 0: the model's default
  std::int32_t classes = 0;        ///< outputs of the model; 0: the model's default
  bool forward_only = false;
  std::string gradient_reduction = "default";  ///< the resolved value is sum, mean or mean-sum
  double first_bucket_mib = 1;                 ///< 0: same as bucket_mib
  double bucket_mib = 25;                      ///< 0: one bucket
  std::int32_t gradient_repacking = 0;         ///< above 0: this many equal pieces instead
  std::int64_t agg_small_grads_max_bytes = 0;  ///< above 0: group small tensors instead
  std::int32_t agg_small_grads_max_group = 10;
  std::string all_reduce_spec;         ///< empty: chosen for the ranks and devices
  std::string gradient_wire = "fp32";  ///< fp32, fp16 or bf16
  std::string on_nonfinite = "stop";
  bool fp16_vars = false;  ///< store weights and biases in `precision`, which has 16 bits
  std::optional<double> fp16_loss_scale;  ///< fp16 only; not set: kFp16LossScale
  bool fp16_enable_auto_loss_scale = false;
  std::int32_t fp16_inc_loss_scale_every_n = 1000;
  std::string cache_dir;  ///< empty: the user's cache, see default_cache_dir

  // The optimizer. If a value is not set, the component's default holds.
  std::optional<double> momentum, rmsprop_decay, rmsprop_momentum, rmsprop_epsilon, adam_beta1,
      adam_beta2, adam_epsilon;
  double init_learning_rate = 0;  ///< 0: 0.005, unless another rule sets it
  std::string piecewise_learning_rate_schedule;
  double num_epochs_per_decay = 0, learning_rate_decay_factor = 0, minimum_learning_rate = 0;
  double num_learning_rate_warmup_epochs = 0;
  double resnet_base_lr = 0;  ///< per 256 images; 0: no special schedule for ResNets
  double weight_decay = 4e-5;
  double gradient_clip = 0;  ///< 0: none

  std::int64_t num_batches = 100;        ///< steps in the measured window
  double num_epochs = 0;                 ///< above 0: sets the steps of the window instead
  std::int64_t num_warmup_batches = 10;  ///< steps before the window

  // Evaluation.
  bool eval = false;                 ///< only evaluate the checkpoint in train_dir
  std::string eval_data_dir;         ///< empty: folder val beside train
  std::int32_t eval_batch_size = 0;  ///< 0: batch_size
  std::int64_t num_eval_batches = 0;
  double num_eval_epochs = 0;  ///< both 0: the whole set
  std::int64_t eval_during_training_every_n_steps = 0;
  double eval_during_training_every_n_epochs = 0;
  std::string eval_during_training_at_specified_steps, eval_during_training_at_specified_epochs;
  double stop_at_top_1_accuracy = 0;  ///< 0: train to the end

  // Checkpoints.
  std::string train_dir;  ///< empty: none
  double save_model_secs = 0;
  std::int64_t save_model_steps = 0;  ///< both 0: at the end only
  std::int64_t max_ckpts_to_keep = 5;

  std::string data_dir;  ///< empty: data/train, created if missing
  std::string on_bad_sample = "default";
  std::string order = "relaxed";
  std::string page_cache = "as-is";
  std::string loop;  ///< of a loader's run, see training_loop.h; empty: the device's
  std::string loader_per = "device";  ///< "device": a loader for each, or "process": they share one
  std::int32_t prefetch = 3;          ///< slots of the host ring; with a loader, those of `loop`
  std::string huge_pages = "transparent";  ///< for the host ring: off, transparent or explicit
  bool pinned_memory = true;               ///< of the host ring
  std::string data_format = "NHWC";        ///< of batches; a result has the feeder's
  std::int32_t batch_group_size = 0;       ///< above 0: the host ring is filled in groups
  std::int32_t device_slots = 2;           ///< slots of each device's ring; as prefetch
  std::int32_t feeder_threads = 0;         ///< 0: one per usable core
  double timeout = 30;                     ///< seconds that producers and other ranks may be silent
  std::uint64_t seed = 1234;
  bool extend_window = false;  ///< measure longer if early batches could decide the rate
  bool instrument = true;      ///< time the stages, sample the rings
  std::int32_t display_every = 10;
  double display_perf_ewma = 0;  ///< 0: plain mean
  std::string loss_type_to_report = "total_loss";
  bool print_training_accuracy = false;

  bool operator==(const RunConfig&) const = default;
};

/// The entry of the component that `text` names; null if this program lacks it.
template <typename Entry>
const Entry* entry_of(const Table<Entry>& table, const std::string& text) {
  return match_entry(table, parse_component(text).name);
}

/// Devices of all processes.
inline std::int64_t all_devices(const RunConfig& config) {
  return std::int64_t{config.num_gpus} * std::max(config.num_processes, 1);
}

/// How a key is read and printed.
struct KeyConversions {
  bool boolean;
  std::string (*get)(const RunConfig&);
  void (*parse)(RunConfig&, std::string_view name, std::string_view text);
};

/// One key of RunConfig: its conversions, names and help text.
struct ConfigKey : KeyConversions {
  std::string_view name;  ///< snake case
  std::string_view help;
  std::string_view aliases = {};  ///< spellings of other benchmarks, separated by spaces

  /// Throws ConfigError, naming the flag, if the text is invalid or out of range.
  void set(RunConfig& config, std::string_view text) const { parse(config, name, text); }
};

std::span<const ConfigKey> config_keys();

/// Throws ConfigError for an unknown key, and suggests the nearest one.
const ConfigKey& find_config_key(std::string_view name);

/// Applies the defaults of another system: tf_cnn_benchmarks, tensorpack, horovod or kungfu.
void apply_like(RunConfig& config, std::string_view system);

/// Flags that reproduce `config`, for a child process.
std::vector<std::string> to_flags(const RunConfig& config);

/// "num_batches" -> "num-batches".
std::string kebab(std::string_view name);

}  // namespace penstock
