// SPDX-License-Identifier: Apache-2.0
#include "bench/config/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "bench/config/config_values.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/placement.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

constexpr std::string_view kTensorFlow = "it tunes TensorFlow's runtime; leave it out";
constexpr std::string_view kInterleave =
    "indexed data are shuffled whole; compressed shards take --fake-location "
    "queue:source='tfrecord:readers=N'";
constexpr std::string_view kCluster =
    "`penstock run` takes it, in each process of a run with parameter servers";
constexpr std::string_view kTracing =
    "--trace-file of `penstock run` writes a timeline, and --json every step time";
constexpr std::string_view kOneTrace = "one run writes a trace: use `penstock run`";

constexpr std::string_view kTwoLevels =
    "--all-reduce-spec hierarchical adds in two levels on --device cpu and emulated; GPUs exchange "
    "by the way that suits their connections, leave it out";

// The defaults are those of tf_cnn_benchmarks.
constexpr ForeignFlag kForeign[] = {
    {"single_l2_loss_op", "weight decay's share of the loss is always one operation", "false"},
    {"freeze_when_forward_only", "weights are always in the memory of the device that uses them",
     "false"},
    {"load", "use --train-dir, whose newest checkpoint is restored"},
    {"eval_dir", "evaluations are printed, and kept by --json; --eval-data-dir names the images",
     "/tmp/tf_cnn_benchmarks/eval"},
    {"collect_eval_results_async",
     "evaluations are part of the run and printed when they end; leave it out", "false"},
    {"batches_per_allreduce", "gradients are exchanged in every step; use a larger --batch-size"},
    {"eval_interval_secs", "--eval evaluates the newest checkpoint once; call it again", "0"},
    {"input_preprocessor", "use --fake-location queue:chain=tf_cnn_benchmarks", "default"},
    {"fuse_decode_and_crop",
     "decoding and cropping are fused; --fake-location queue:decode=full decodes whole images",
     "true"},
    {"use_datasets", "choose the pipeline with --fake-location", "true"},
    {"datasets_use_prefetch", "use --prefetch and --device-slots", "true"},
    {"datasets_prefetch_buffer_size", "use --prefetch", "1"},
    {"multi_device_iterator_max_buffer_size", "use --device-slots", "1"},
    {"datasets_use_caching", "use --fake-location queue:source=memory", "false"},
    {"datasets_parallel_interleave_cycle_length", kInterleave},
    {"datasets_sloppy_parallel_interleave", "use --order relaxed", "false"},
    {"datasets_parallel_interleave_prefetch", "use --fake-location queue:readahead=N"},
    {"use_python32_barrier", kTensorFlow, "false"},
    {"gpu_thread_mode", kTensorFlow, "gpu_private"},
    {"per_gpu_thread_count", kTensorFlow, "0"},
    {"num_inter_threads", kTensorFlow, "0"},
    {"use_numa_affinity", "use --fake-location queue:numa=NODE", "false"},
    {"mkl", kTensorFlow, "false"},
    {"kmp_blocktime", kTensorFlow, "0"},
    {"kmp_affinity", kTensorFlow, "granularity=fine,verbose,compact,1,0"},
    {"kmp_settings", kTensorFlow, "1"},
    {"allow_growth", kTensorFlow},
    {"gpu_memory_frac_for_testing", kTensorFlow, "0"},
    {"gpu_kt_max_interval", kTensorFlow, "0"},
    {"gpu_kt_max_bytes", kTensorFlow, "0"},
    {"gpu_kt_max_pending", kTensorFlow, "0"},
    {"use_unified_memory", kTensorFlow},
    {"timestamped_allocator", kTensorFlow, "false"},
    {"winograd_nonfused", kTensorFlow, "true"},
    {"batchnorm_persistent", kTensorFlow, "true"},
    {"sync_on_finish", "devices are always synchronised at both ends of the window", "false"},
    {"autotune_threshold", kTensorFlow},
    {"gpu_indices", "devices are numbered from 0; use --num-gpus", ""},
    {"gpu", "use --num-gpus with the number of devices"},
    {"hierarchical_copy", kTwoLevels, "false"},
    {"network_topology", kTwoLevels, "dgx1"},
    {"job_name", kCluster, ""},
    {"job", kCluster},
    {"ps_hosts", kCluster, ""},
    {"worker_hosts", kCluster, ""},
    {"controller_host", "no task of a run controls the others; leave it out"},
    {"task_index", kCluster, "0"},
    {"server_protocol", "parameter servers speak ZeroMQ over TCP; leave it out", "grpc"},
    {"horovod_device", "start with mpirun and --variable-update horovod; leave it out", ""},
    {"use_adasum", "gradients are added or averaged; leave it out"},
    {"rewriter_config", kTensorFlow},
    {"enable_optimizations", kTensorFlow, "true"},
    {"compute_lr_on_cpu", kTensorFlow, "false"},
    {"sparse_to_dense_grads", kTensorFlow, "false"},
    {"use_resource_vars", kTensorFlow, "false"},
    {"use_tf_layers", kTensorFlow, "true"},
    {"trt_mode", kTensorFlow, ""},
    {"trt_max_workspace_size_bytes", kTensorFlow, "4294967296"},
    {"trace_file", kOneTrace, ""},
    {"trace_steps", kOneTrace},
    {"use_chrome_trace_format", "traces are always in Chrome's format; leave it out", "true"},
    {"tfprof_file", kOneTrace},
    {"graph_file", "one run writes the graph of its model: use `penstock run`"},
    {"partitioned_graph_file_prefix", kTracing},
    {"summary_verbosity", kTracing, "0"},
    {"save_summaries_steps", kTracing, "0"},
    {"benchmark_log_dir", "use --json, or sweep's --out"},
    {"benchmark_test_id", "use --json, or sweep's --out"},
    {"debugger", kTensorFlow},
    {"backbone_model_path",
     "models here classify images and have no backbone to load; leave it out"},
    {"ml_perf", "state what its rules set, such as --model, --optimizer lars and --num-epochs",
     "false"},
    {"ml_perf_compliance_logging", "use --json, which has every step time and setting", "false"},
    {"loader",
     "`run` and `isolate` take it; here use --fake-location python:loader=FILE.py:FUNCTION"},
    {"learning_rate", "use --init-learning-rate"},
    {"flush_stdout", "lines are printed at once; leave it out"},
};

/// True for an unknown or absent feeder too, which the run itself reports.
bool decodes_samples(const ComponentText& feeder) {
  const FeederEntry* const entry = match_entry(feeder_table(), feeder.name);
  return entry == nullptr || entry->decodes_samples;
}

/// Adds `option=value` to the feeder, which must not have this option yet.
void add_option(RunConfig& config, std::string_view flag, std::string_view option,
                std::string_view value) {
  const ComponentText feeder = parse_component(config.fake_location);
  if (!decodes_samples(feeder)) {
    throw ConfigError(
        "--{} is about images that are decoded, and --fake-location is {}; expected queue; use "
        "--fake-location queue:{}={}, or leave --{} out",
        flag, config.fake_location, option, value, flag);
  }
  const bool typed = std::ranges::any_of(
      feeder.values, [option](const auto& typed_value) { return typed_value.first == option; });
  if (typed) {
    throw ConfigError(
        "--{} sets the feeder's {}, and --fake-location {} does so too; leave one of them out",
        flag, option, config.fake_location);
  }
  config.fake_location += fmt::format("{}{}={}", feeder.values.empty() ? ":" : ",", option, value);
}

void set_resize(RunConfig& config, const std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kMethods[] = {
      {"nearest", "tf_nearest"},
      {"bilinear", "tf_bilinear"},
      {"bicubic", "tf_bicubic"},
      {"area", "area"},
      {"round_robin", "tf_round_robin"}};
  for (const auto& [theirs, ours] : kMethods) {
    if (canonical_name(text) == canonical_name(theirs)) {
      return add_option(config, "resize-method", "resize", ours);
    }
  }
  throw ConfigError(
      "--resize-method is {}; expected nearest, bilinear, bicubic, area or round_robin", text);
}

/// ImageNet needs no option: the feeder finds the format of its files by their names.
void set_data_name(RunConfig& config, const std::string& text) {
  const std::string data_name = canonical_name(text);
  if (data_name == "imagenet") return;
  if (data_name != "cifar10") {
    throw ConfigError("--data-name is {}; expected imagenet or cifar10: images, one label each",
                      text);
  }
  if (!decodes_samples(parse_component(config.fake_location))) return;
  add_option(config, "data-name", "source", "cifar10");
}

/// Adds an option to the update's value. Throws ConfigError if `config` names another update.
void add_update_option(RunConfig& config, std::string_view flag, std::string_view update,
                       std::string_view option) {
  std::string& text = config.variable_update;
  if (canonical_name(parse_component(text).name) != canonical_name(update)) {
    throw ConfigError(
        "{} applies to --variable-update {}, but that is '{}'; pass --variable-update {}:{}, or "
        "leave {} out",
        flag, update, text, update, option, flag);
  }
  text += fmt::format("{}{}", text.find(':') == std::string::npos ? ':' : ',', option);
}

void set_consistency(RunConfig& config, const std::string& text) {
  std::string word;
  set_word(word, "variable_consistency", text, {"strong", "relaxed"});
  if (word == "strong") return;  // the default of every update
  add_update_option(config, "--variable-consistency", "replicated", "consistency=relaxed");
}

/// In tf_cnn_benchmarks too, updates without a parameter device ignore it.
void set_local_parameter_device(RunConfig& config, const std::string& text) {
  std::string word;
  set_word(word, "local_parameter_device", text, {"cpu", "gpu"});
  const UpdateEntry* const update = entry_of(update_table(), config.variable_update);
  if (word == "gpu" || update == nullptr || update->in_host_memory == nullptr) return;
  add_update_option(config, "--local-parameter-device", update->name, "memory=host");
}

bool is_record(std::string_view option) { return option == "record"; }

/// Why --use-xla-compile changes nothing: a step is always compiled, and only some devices can also
/// enqueue its kernels one by one. Empty: it changes the device.
std::string xla_note(const RunConfig& config, const std::string& text) {
  const bool enabled = parse_flag(text, "--use-xla-compile");
  const BackendEntry* const backend = entry_of(backend_table(), config.device);
  const bool records =
      backend != nullptr && std::ranges::any_of(backend->options, is_record, &OptionSpec::name);
  if (records && !enabled) return {};
  const char* const why =
      !enabled
          ? "a step is always compiled; with a stated --device gpu this flag is gpu:record=false"
      : records ? "a step is compiled and recorded as one graph already"
      : backend != nullptr && backend->emulates ? "a step takes its stated time"
                                                : "a step is compiled already";
  return fmt::format("--{}use-xla-compile changes nothing with --device {}: {}",
                     enabled ? "" : "no", config.device, why);
}

void set_xla(RunConfig& config, const std::string& text) {
  if (!xla_note(config, text).empty()) return;
  const ComponentText device = parse_component(config.device);
  for (const auto& [option, value] : device.values) {
    if (!is_record(option)) continue;
    throw ConfigError(
        "--nouse-xla-compile sets the device's record, and --device {} does so too; leave one of "
        "them out",
        config.device);
  }
  config.device += fmt::format("{}record=false", device.values.empty() ? ":" : ",");
}

/// tf_cnn_benchmarks sets this by default, except if gradients have 16 bits already.
void set_compact(RunConfig& config, const std::string& text) {
  if (!parse_flag(text, "--compact-gradient-transfer")) return;
  if (config.gradient_wire == "bf16") {
    throw ConfigError(
        "--compact-gradient-transfer exchanges fp16, and --gradient-wire is bf16; leave one of "
        "them out");
  }
  config.gradient_wire = "fp16";
}

/// tf_cnn_benchmarks lets TensorFlow merge this many all-reduces of one scope.
void set_merge_scope(RunConfig& config, const std::string& text) {
  constexpr std::int64_t kMost = 1'000'000, kAnySize = std::int64_t{1} << 40;
  const std::int64_t gradients = parse_integer(text, "--allreduce-merge-scope");
  if (gradients < 1 || gradients > kMost) {
    throw ConfigError(
        "--allreduce-merge-scope is {}; expected the gradients of one exchange, 1 to {}", text,
        kMost);
  }
  if (gradients == 1) return;  // the default of tf_cnn_benchmarks
  if (config.agg_small_grads_max_bytes > 0) {
    throw ConfigError(
        "--allreduce-merge-scope is {}, which groups gradients of all sizes, and "
        "--agg-small-grads-max-bytes is {}, which groups small ones; leave one of them out",
        gradients, config.agg_small_grads_max_bytes);
  }
  config.agg_small_grads_max_bytes = kAnySize;
  config.agg_small_grads_max_group = static_cast<std::int32_t>(gradients);
}

/// A flag of another system that sets keys of RunConfig.
struct TranslatedFlag {
  std::string_view name, aliases;
  bool boolean = false;
  std::string_view fallback, help;
  void (*set)(RunConfig&, const std::string&);
  std::string (*note)(const RunConfig&, const std::string&) = nullptr;
};

/// In the order in which they are applied.
constexpr TranslatedFlag kTranslated[] = {
    {"like", "", false, "", "use the defaults of tf_cnn_benchmarks, tensorpack, horovod or kungfu",
     [](RunConfig&, const std::string&) { /* applied before all others */ }},
    {"use_fp16", "", true, "false", "same as --precision fp16",
     [](RunConfig& config, const std::string& text) {
       const bool enabled = parse_flag(text, "--use-fp16");
       if (enabled) config.precision = "fp16";
       if (!enabled && config.precision == "fp16") config.precision = "fp32";
     }},
    {"fusion_threshold_mb", "", false, "",
     "same as --bucket-mib and --first-bucket-mib, in MiB; 0: one bucket per tensor",
     [](RunConfig& config, const std::string& text) {
       find_config_key("bucket_mib").set(config, text);
       config.first_bucket_mib = 0;
       constexpr double kOneByte = 1.0 / (1 << 20);
       if (config.bucket_mib == 0) config.bucket_mib = kOneByte;
     }},
    {"no_cuda", "", true, "false", "same as --device cpu",
     [](RunConfig& config, const std::string& text) {
       if (parse_flag(text, "--no-cuda")) config.device = "cpu";
     }},
    {"use_xla_compile", "xla_compile xla", true, "true",
     "false: same as --device gpu:record=false; true changes nothing: steps are always compiled",
     set_xla, xla_note},
    {"variable_consistency", "", false, "strong",
     "strong, or relaxed: same as --variable-update replicated:consistency=relaxed",
     set_consistency},
    {"staged_vars", "", true, "false", "same as --variable-update parameter_server:staged=true",
     [](RunConfig& config, const std::string& text) {
       if (!parse_flag(text, "--staged-vars")) return;
       add_update_option(config, "--staged-vars", "parameter_server", "staged=true");
     }},
    {"ps_placement", "", false, "first",
     "first, greedy or split: same as --variable-update parameter_server:placement=...",
     [](RunConfig& config, const std::string& text) {
       static_cast<void>(parse_placement(text, "--ps-placement"));  // throws on another word
       add_update_option(config, "--ps-placement", "parameter_server", "placement=" + text);
     }},
    {"cross_replica_sync", "", true, "true",
     "--nocross-replica-sync: same as --variable-update parameter_server:sync=false",
     [](RunConfig& config, const std::string& text) {
       if (parse_flag(text, "--cross-replica-sync")) return;  // the default of every update
       add_update_option(config, "--cross-replica-sync", "parameter_server", "sync=false");
     }},
    {"local_parameter_device", "", false, "gpu",
     "gpu, or cpu: same as --variable-update parameter_server:memory=host",
     set_local_parameter_device},
    {"kungfu", "kf_optimizer", false, "",
     "sync-sgd, async-sgd or sma: same as --variable-update with that value",
     [](RunConfig& config, const std::string& text) {
       set_word(config.variable_update, "kungfu", text, {"sync-sgd", "async-sgd", "sma"});
     }},
    {"compact_gradient_transfer", "fp16_allreduce", true, "false", "same as --gradient-wire fp16",
     set_compact},
    {"allreduce_merge_scope", "", false, "1",
     "gradients per exchange, whatever their sizes; 1: in buckets", set_merge_scope},
    {"data_name", "", false, "",
     "imagenet or cifar10 (same as queue:source=cifar10); default: by file names", set_data_name},
    {"resize_method", "", false, "",
     "nearest, bilinear, bicubic, area or round_robin: same as queue:resize=tf_...", set_resize},
    {"distortions", "", true, "false", "same as queue:color=tf_yiq",
     [](RunConfig& config, const std::string& text) {
       if (!parse_flag(text, "--distortions")) return;
       add_option(config, "distortions", "color", "tf_yiq");
     }},
    {"distort_color_in_yiq", "", true, "true", "false: --distortions is queue:color=tf",
     [](RunConfig& config, const std::string& text) {
       constexpr std::string_view kYiq = "color=tf_yiq", kSuffix = "_yiq";
       if (parse_flag(text, "--distort-color-in-yiq")) return;
       std::string& feeder = config.fake_location;  // --distortions is applied before
       if (feeder.ends_with(kYiq)) feeder.resize(feeder.size() - kSuffix.size());
     }},
    {"datasets_repeat_cached_sample", "", true, "false", "same as queue:repeat_cached_sample=true",
     [](RunConfig& config, const std::string& text) {
       if (!parse_flag(text, "--datasets-repeat-cached-sample")) return;
       add_option(config, "datasets-repeat-cached-sample", "repeat_cached_sample", "true");
     }}};

/// --num-iters and --num-batches-per-iter of Horovod's scripts, whose defaults are 10 and 10.
std::vector<Flag> iteration_flags(RunConfig& config) {
  struct Iterations {
    std::int64_t count = 10, batches = 10;
  };
  const auto iterations = std::make_shared<Iterations>();
  const auto flag = [&](std::string_view name, std::string_view help,
                        std::int64_t Iterations::*member) {
    const auto set = [&config, iterations, member, name](const std::string& text) {
      RunConfig parsed;
      find_config_key("num_batches").parse(parsed, name, text);
      (*iterations).*member = parsed.num_batches;
      config.num_batches = iterations->count * iterations->batches;
    };
    return FlagGroup{kOtherSystems}(std::string(name), std::string(help), "10", set);
  };
  return {
      flag("num_iters", "iterations: --num-batches is this times --num-batches-per-iter",
           &Iterations::count),
      flag("num_batches_per_iter", "steps per iteration, see --num-iters", &Iterations::batches)};
}

}  // namespace

std::span<const ForeignFlag> foreign_flags() { return kForeign; }

std::vector<Flag> translated_flags(RunConfig& config) {
  std::vector<Flag> flags = iteration_flags(config);
  for (const TranslatedFlag& each : kTranslated) {
    flags.push_back(
        {.name = std::string(each.name),
         .aliases = std::string(each.aliases),
         .help = std::string(each.help),
         .fallback = std::string(each.fallback),
         .boolean = each.boolean,
         .set = [&config, set = each.set](const std::string& text) { set(config, text); },
         .note = [&config, note = each.note](
                     const std::string& text) { return note == nullptr ? "" : note(config, text); },
         .group = kOtherSystems});
  }
  return flags;
}

}  // namespace penstock
