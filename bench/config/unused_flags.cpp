// SPDX-License-Identifier: Apache-2.0
#include "bench/config/unused_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "bench/config/flags.h"
#include "bench/config/training_loop.h"
#include "bench/config/training_rules.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/model.h"

namespace penstock {
namespace {

/// Also true if a producer started by a sweep reads files.
bool reads_files(const RunConfig& run) {
  const FeederEntry* const feeder = entry_of(feeder_table(), run.fake_location);
  if (feeder == nullptr || feeder->reads_files) return true;
  const auto typed = parse_component(run.fake_location).values;
  return feeder->needs_producer && std::ranges::none_of(typed, [](const auto& option) {
           return option.first == "endpoint" || option.first == "producer";
         });
}
bool has_host_ring(const RunConfig& run) {
  const FeederEntry* const feeder = entry_of(feeder_table(), run.fake_location);
  return feeder == nullptr || feeder->slots != MemoryKind::device;
}
bool has_own_depth(const RunConfig& run) { return !has_loader(run); }
bool evaluates(const RunConfig& run) { return run.eval || evaluates_while_training(run); }
bool trains(const RunConfig& run) { return !run.eval && !run.forward_only; }
bool has_resnet_rates(const RunConfig& run) {
  const ModelEntry* const model = entry_of(model_table(), run.model);
  return trains(run) && (model == nullptr || uses_resnet_schedule(run, *model));
}
bool scales_loss(const RunConfig& run) { return run.precision == "fp16"; }
bool adapts_scale(const RunConfig& run) { return run.fp16_enable_auto_loss_scale; }
bool keeps_checkpoints(const RunConfig& run) { return !run.train_dir.empty(); }
bool groups_gradients(const RunConfig& run) { return run.agg_small_grads_max_bytes > 0; }
bool computes_on_host(const RunConfig& run) {
  const BackendEntry* const backend = entry_of(backend_table(), run.device);
  return backend == nullptr || backend->computes_on_host;
}

bool has_precision(const RunConfig& run) {
  const BackendEntry* const backend = entry_of(backend_table(), run.device);
  return backend == nullptr || !backend->emulates;
}

struct Effect {
  std::string_view flag;
  bool (*is_used)(const RunConfig&);
  std::string_view otherwise;  ///< why it has no effect
};

constexpr std::string_view kNoFiles =
    "the feeder of --fake-location reads no files; use --fake-location queue";
constexpr std::string_view kNoEvaluation =
    "nothing is evaluated; add --eval or --eval-during-training-every-n-epochs";
constexpr std::string_view kNoTraining = "--eval and --forward-only change no weights";
constexpr std::string_view kNoHostRing =
    "the feeder of --fake-location fills slots of the device; use --device-slots";

constexpr std::string_view kStatedTime =
    "the step of an emulated device takes its stated time in every precision";
constexpr std::string_view kDepthOfLoop = "a loader's run is as deep as its loop; use --loop";

constexpr Effect kEffects[] = {
    {"data_dir", reads_files, kNoFiles},
    {"data_name", reads_files, kNoFiles},
    {"eval_data_dir", evaluates, kNoEvaluation},
    {"eval_batch_size", evaluates, kNoEvaluation},
    {"num_eval_batches", evaluates, kNoEvaluation},
    {"num_eval_epochs", evaluates, kNoEvaluation},
    {"resnet_base_lr", has_resnet_rates,
     "it applies to ResNets for ImageNet and CIFAR, if no other flag sets the rates; use "
     "--init-learning-rate"},
    {"init_learning_rate", trains, kNoTraining},
    {"piecewise_learning_rate_schedule", trains, kNoTraining},
    {"num_learning_rate_warmup_epochs", trains, kNoTraining},
    {"gradient_clip", trains, kNoTraining},
    {"precision", has_precision, kStatedTime},
    {"use_fp16", has_precision, kStatedTime},
    {"fp16_loss_scale", scales_loss, "only --precision fp16 trains with a loss scale"},
    {"fp16_inc_loss_scale_every_n", adapts_scale, "see --fp16-enable-auto-loss-scale"},
    {"agg_small_grads_max_group", groups_gradients, "see --agg-small-grads-max-bytes"},
    {"max_ckpts_to_keep", keeps_checkpoints, "no checkpoint is saved; add --train-dir"},
    {"loop", has_loader, "it is for loaders; use --loader"},
    {"loader_per", has_loader, "it is for loaders; use --loader"},
    {"prefetch", has_host_ring, kNoHostRing},
    {"prefetch", has_own_depth, kDepthOfLoop},
    {"device_slots", has_own_depth, kDepthOfLoop},
    {"huge_pages", has_host_ring, kNoHostRing},
    {"pinned_memory", has_host_ring, kNoHostRing},
    {"batch_group_size", has_host_ring, kNoHostRing},
    {"batch_group_size", has_own_depth, kDepthOfLoop},
    {"compute_threads", computes_on_host, "only --device cpu has such threads"},
};

bool is_asked_for(const Effect& effect, std::span<const RunConfig> runs,
                  std::span<const std::string> arguments) {
  const bool typed = is_typed(effect.flag, arguments);
  const auto key = std::ranges::find(config_keys(), effect.flag, &ConfigKey::name);
  if (key == config_keys().end()) return typed;  // no key
  const std::string by_default = key->get(RunConfig());
  return typed && std::ranges::any_of(
                      runs, [&](const RunConfig& run) { return key->get(run) != by_default; });
}

}  // namespace

std::vector<std::string> unused_flags(std::span<const RunConfig> runs,
                                      std::span<const std::string> arguments) {
  std::vector<std::string> sentences;
  for (const Effect& effect : kEffects) {
    if (!is_asked_for(effect, runs, arguments) || std::ranges::any_of(runs, effect.is_used)) {
      continue;
    }
    sentences.push_back(
        fmt::format("--{} has no effect in this run: {}", kebab(effect.flag), effect.otherwise));
  }
  return sentences;
}

void say_unused_flags(std::span<const RunConfig> runs, std::span<const std::string> arguments) {
  for (const std::string& sentence : unused_flags(runs, arguments)) {
    fmt::print(stderr, "penstock: {}\n", sentence);
  }
}

}  // namespace penstock
