// SPDX-License-Identifier: Apache-2.0
#include "bench/config/training_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

/// A flag of another system, and the option that it stands for.
struct OptimizerFlag {
  std::string_view flag, optimizer, option;
  std::optional<double> RunConfig::*value;
};
constexpr OptimizerFlag kOptimizerFlags[] = {
    {"--momentum", "momentum", "momentum", &RunConfig::momentum},
    {"--rmsprop-decay", "rmsprop", "decay", &RunConfig::rmsprop_decay},
    {"--rmsprop-momentum", "rmsprop", "momentum", &RunConfig::rmsprop_momentum},
    {"--rmsprop-epsilon", "rmsprop", "epsilon", &RunConfig::rmsprop_epsilon},
    {"--adam-beta1", "adam", "beta1", &RunConfig::adam_beta1},
    {"--adam-beta2", "adam", "beta2", &RunConfig::adam_beta2},
    {"--adam-epsilon", "adam", "epsilon", &RunConfig::adam_epsilon},
};

/// A system's rule for an update that does not take the mean.
struct ReductionRule {
  std::string_view system, update, word;
};
constexpr ReductionRule kReductionRules[] = {
    {"tf_cnn_benchmarks", "replicated", "sum"},
    {"tf_cnn_benchmarks", "horovod", "sum"},
    {"tf_cnn_benchmarks", "distributed-all-reduce", "sum"},
    {"tf_cnn_benchmarks", "collective-all-reduce", "sum"},
    {"tf_cnn_benchmarks", "parameter-server", "mean-sum"},
    {"tf_cnn_benchmarks", "distributed-replicated", "mean-sum"},
    {"tensorpack", "replicated", "sum"},
    {"tensorpack", "distributed-replicated", "mean-sum"},
};

bool is_cifar(const ImageShape& image) { return image.height == 32; }

/// The schedule of tf_cnn_benchmarks' ResNets for CIFAR-10 (ResnetCifar10Model.get_learning_rate).
/// Its epochs have int(50000 / batch) steps, whatever the data. The step at the boundary still has
/// the previous rate. There is no warm-up, and no base rate.
LearningRatePlan cifar_resnet_plan(double global_batch) {
  constexpr double kImages = 50000;
  const auto steps_per_epoch = static_cast<std::int64_t>(kImages / global_batch);
  return {.initial = 0.1,
          .pieces = {{82 * steps_per_epoch + 1, 0.01},
                     {123 * steps_per_epoch + 1, 0.001},
                     {300 * steps_per_epoch + 1, 0.0002}}};
}

void refuse_contradictions(const RunConfig& config) {
  const bool decays = config.num_epochs_per_decay > 0 || config.learning_rate_decay_factor > 0 ||
                      config.minimum_learning_rate > 0;
  if (!config.piecewise_learning_rate_schedule.empty() &&
      (config.init_learning_rate > 0 || decays)) {
    throw ConfigError(
        "--piecewise-learning-rate-schedule states all rates; leave out --init-learning-rate, "
        "--num-epochs-per-decay, --learning-rate-decay-factor and --minimum-learning-rate");
  }
  if (decays && !(config.num_epochs_per_decay > 0 && config.learning_rate_decay_factor > 0)) {
    throw ConfigError(
        "learning rates decay by --num-epochs-per-decay and --learning-rate-decay-factor together; "
        "they are {} and {}; state both above 0, or leave both and --minimum-learning-rate out",
        config.num_epochs_per_decay, config.learning_rate_decay_factor);
  }
}

}  // namespace

BatchSpec batch_spec(const RunConfig& config, const ModelEntry& model) {
  BatchSpec spec{.images = config.batch_size, .image = model.image, .classes = config.classes};
  if (config.image_size > 0) spec.image.height = spec.image.width = config.image_size;
  return spec;
}

Precision parse_precision(const std::string& text) {
  for (const Precision precision :
       {Precision::f32, Precision::tf32, Precision::f16, Precision::bf16}) {
    if (to_string(precision) == text) return precision;
  }
  throw ConfigError("--precision is '{}'; expected fp32, tf32, fp16 or bf16", text);
}

DType stored_weights(const RunConfig& config) {
  if (!config.fp16_vars) return DType::f32;
  switch (parse_precision(config.precision)) {
    case Precision::f16:
      return DType::f16;
    case Precision::bf16:
      return DType::bf16;
    default:
      throw ConfigError(
          "--fp16-vars stores weights in the 16 bits of --precision, which is {}; expected fp16 or "
          "bf16; state it, or leave --fp16-vars out",
          config.precision);
  }
}

float loss_scale_of(const RunConfig& config) {
  if (parse_precision(config.precision) != Precision::f16) return 1;
  return static_cast<float>(config.fp16_loss_scale.value_or(kFp16LossScale));
}

std::int32_t counted_steps_of_loss_scale(const RunConfig& config) {
  if (parse_precision(config.precision) != Precision::f16) return 0;
  return config.fp16_enable_auto_loss_scale ? config.fp16_inc_loss_scale_every_n : 0;
}

std::string default_cache_dir() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/penstock";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/penstock";
  return {};
}

BadSamplePolicy parse_bad_sample_policy(const std::string& text) {
  const ComponentText parts = parse_component(text);
  BadSamplePolicy policy;
  if (parts.name == "fail") policy.action = BadSamplePolicy::Action::fail;
  if (parts.name == "skip") policy.action = BadSamplePolicy::Action::skip;
  for (const auto& [key, value] : parts.values) policy.limit = parse_integer(value, key);
  return policy;
}

std::string optimizer_text(const RunConfig& config) {
  std::string text = config.optimizer;
  const std::string name = canonical_name(parse_component(text).name);
  for (const OptimizerFlag& flag : kOptimizerFlags) {
    const std::optional<double>& value = config.*flag.value;
    if (!value) continue;
    if (name != flag.optimizer) {
      throw ConfigError(
          "{} is {}, which --optimizer {} does not use; add --optimizer {}, or leave it out",
          flag.flag, *value, config.optimizer, flag.optimizer);
    }
    text += fmt::format("{}{}={}", text.find(':') == std::string::npos ? ':' : ',', flag.option,
                        *value);
  }
  return text;
}

GradientReduction parse_gradient_reduction(const std::string& text) {
  if (text == "sum") return GradientReduction::sum;
  if (text == "mean") return GradientReduction::mean;
  if (text == "mean-sum") return GradientReduction::mean_sum;
  throw ConfigError("--gradient-reduction is '{}'; expected sum, mean or mean-sum", text);
}

std::string resolve_gradient_reduction(const RunConfig& config) {
  const std::string& word = config.gradient_reduction;
  if (word == "sum" || word == "mean" || word == "mean-sum") return word;
  const std::string update = canonical_name(parse_component(config.variable_update).name);
  for (const ReductionRule& rule : kReductionRules) {
    if (rule.system == word && rule.update == update) return std::string(rule.word);
  }
  return "mean";
}

BucketLimits bucket_limits(const RunConfig& config) {
  const auto bytes = [](double mib) {
    constexpr double kMostMiB = 1 << 30;  // more than any model has
    if (!(mib > 0)) return std::size_t{0};
    return std::max<std::size_t>(
        1, static_cast<std::size_t>(std::min(mib, kMostMiB) * BucketLimits::kMiB));
  };
  if (config.gradient_repacking > 0 && config.agg_small_grads_max_bytes > 0) {
    throw ConfigError(
        "--gradient-repacking is {}, which cuts all gradients into equal pieces, and "
        "--agg-small-grads-max-bytes is {}, which groups small ones; leave one of them out",
        config.gradient_repacking, config.agg_small_grads_max_bytes);
  }
  return {.first_bytes = bytes(config.first_bucket_mib),
          .bytes = bytes(config.bucket_mib),
          .pieces = static_cast<std::size_t>(config.gradient_repacking),
          .small_bytes = static_cast<std::size_t>(config.agg_small_grads_max_bytes),
          .small_group = static_cast<std::size_t>(config.agg_small_grads_max_group)};
}

bool uses_resnet_schedule(const RunConfig& config, const ModelEntry& model) {
  const bool stated =
      config.init_learning_rate > 0 || !config.piecewise_learning_rate_schedule.empty();
  return !stated && config.resnet_base_lr > 0 &&
         (model.image.height >= 224 || is_cifar(model.image)) && model.residual;
}

LearningRatePlan learning_rate_plan(const RunConfig& config, const ModelEntry& model,
                                    double examples_per_epoch) {
  refuse_contradictions(config);
  const double global = static_cast<double>(config.batch_size * all_devices(config));
  const double steps_per_epoch = examples_per_epoch / global;
  LearningRatePlan plan;
  if (!config.piecewise_learning_rate_schedule.empty()) {
    const std::vector<EpochRate> schedule =
        parse_rate_schedule(config.piecewise_learning_rate_schedule);
    plan = plan_of_schedule(schedule, steps_per_epoch);
  } else if (config.init_learning_rate > 0) {
    plan.initial = config.init_learning_rate;
  } else if (uses_resnet_schedule(config, model)) {
    double initial = config.resnet_base_lr * global / 256;
    if (config.gradient_reduction == "sum") initial /= static_cast<double>(all_devices(config));
    plan =
        is_cifar(model.image) ? cifar_resnet_plan(global) : resnet_plan(initial, steps_per_epoch);
  } else {
    plan.initial = kDefaultLearningRate;
  }
  if (config.num_epochs_per_decay > 0) {
    plan.decay_steps = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(config.num_epochs_per_decay * steps_per_epoch));
    plan.decay_factor = config.learning_rate_decay_factor;
    plan.minimum = config.minimum_learning_rate;
  }
  if (config.num_learning_rate_warmup_epochs > 0) {
    plan.warmup_steps =
        static_cast<std::int64_t>(config.num_learning_rate_warmup_epochs * steps_per_epoch);
  }
  return plan;
}

std::int64_t resolve_steps(const RunConfig& config, const DataExtent& extent) {
  if (!(config.num_epochs > 0)) return config.num_batches;
  if (extent.examples == 0) {
    throw ConfigError(
        "--num-epochs is {}, but the feeder '{}' has no number of examples; use --fake-location "
        "queue, or state --num-batches",
        config.num_epochs, config.fake_location);
  }
  const double global = static_cast<double>(config.batch_size * all_devices(config));
  const double steps = config.num_epochs * static_cast<double>(extent.examples) / global;
  constexpr double kSlack = 1e-6;  // tolerates rounding errors
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(steps - kSlack)));
}

bool evaluates_while_training(const RunConfig& config) {
  return config.eval_during_training_every_n_steps > 0 ||
         config.eval_during_training_every_n_epochs > 0 ||
         !config.eval_during_training_at_specified_steps.empty() ||
         !config.eval_during_training_at_specified_epochs.empty();
}

Hyper hyper_of(const RunConfig& config) {
  return {.weight_decay = static_cast<float>(config.weight_decay),
          .gradient_clip = static_cast<float>(config.gradient_clip)};
}

}  // namespace penstock
