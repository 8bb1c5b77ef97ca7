// SPDX-License-Identifier: Apache-2.0
#include "bench/config/update_flags.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "bench/config/config_values.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/backend.h"
#include "trainer/placement.h"

namespace penstock {
namespace {

/// Adds an option to the update's value. Throws ConfigError if `config` names another update.
void add_option(RunConfig& config, std::string_view flag, std::string_view update,
                std::string_view option) {
  std::string& text = config.variable_update;
  if (canonical_name(parse_component(text).name) != canonical_name(update)) {
    throw ConfigError(
        fmt::format("{} applies to --variable-update {}, but that is '{}'; pass --variable-update "
                    "{}:{}, or leave {} out",
                    flag, update, text, update, option, flag));
  }
  text += fmt::format("{}{}", text.find(':') == std::string::npos ? ':' : ',', option);
}

void set_consistency(RunConfig& config, const std::string& text) {
  std::string word;
  set_word(word, "variable_consistency", text, {"strong", "relaxed"});
  if (word == "strong") return;  // the default of every update
  add_option(config, "--variable-consistency", "replicated", "consistency=relaxed");
}

void set_staged(RunConfig& config, const std::string& text) {
  if (!parse_flag(text, "--staged-vars")) return;
  add_option(config, "--staged-vars", "parameter_server", "staged=true");
}

void set_cross_replica_sync(RunConfig& config, const std::string& text) {
  if (parse_flag(text, "--cross-replica-sync")) return;  // the default of every update
  add_option(config, "--cross-replica-sync", "parameter_server", "sync=false");
}

void set_placement(RunConfig& config, const std::string& text) {
  static_cast<void>(parse_placement(text, "--ps-placement"));  // throws on another word
  add_option(config, "--ps-placement", "parameter_server", "placement=" + text);
}

/// Weights live in the memory of the first device. For a device made of host cores, that is the
/// CPU.
void set_local_parameter_device(RunConfig& config, const std::string& text) {
  std::string word;
  set_word(word, "local_parameter_device", text, {"cpu", "gpu"});
  if (word == "gpu") return;
  const BackendEntry* const backend =
      match_entry(backend_table(), parse_component(config.device).name);
  if (backend != nullptr && backend->computes_on_host) return;
  throw ConfigError(fmt::format(
      "--local-parameter-device is cpu, but weights are kept and updated on the first device, here "
      "--device {}; updates on the CPU for another device are unsupported; pass "
      "--local-parameter-device gpu, leave it out, or train on --device cpu",
      config.device));
}

void set_kungfu(RunConfig& config, const std::string& text) {
  set_word(config.variable_update, "kungfu", text, {"sync-sgd", "async-sgd", "sma"});
}

/// tf_cnn_benchmarks sets this by default, except if gradients have 16 bits already.
void set_compact(RunConfig& config, const std::string& text) {
  if (!parse_flag(text, "--compact-gradient-transfer")) return;
  if (config.gradient_wire == "bf16") {
    throw ConfigError(
        "--compact-gradient-transfer exchanges fp16, and --gradient-wire is bf16; leave one of "
        "them "
        "out");
  }
  config.gradient_wire = "fp16";
}

/// tf_cnn_benchmarks lets TensorFlow merge this many all-reduces of one scope.
void set_merge_scope(RunConfig& config, const std::string& text) {
  constexpr std::int64_t kMost = 1'000'000, kAnySize = std::int64_t{1} << 40;
  const std::int64_t gradients = parse_integer(text, "--allreduce-merge-scope");
  if (gradients < 1 || gradients > kMost) {
    throw ConfigError(fmt::format(
        "--allreduce-merge-scope is {}; expected the gradients of one exchange, 1 to {}", text,
        kMost));
  }
  if (gradients == 1) return;  // the default of tf_cnn_benchmarks
  if (config.agg_small_grads_max_bytes > 0) {
    throw ConfigError(fmt::format(
        "--allreduce-merge-scope is {}, which groups gradients of all sizes, and "
        "--agg-small-grads-max-bytes is {}, which groups small ones; leave one of them out",
        gradients, config.agg_small_grads_max_bytes));
  }
  config.agg_small_grads_max_bytes = kAnySize;
  config.agg_small_grads_max_group = static_cast<std::int32_t>(gradients);
}

}  // namespace

std::vector<Flag> update_flags(RunConfig& config) {
  const auto flag = [&config](std::string name, std::string help, std::string fallback,
                              void (*set)(RunConfig&, const std::string&)) {
    return Flag{.name = std::move(name),
                .help = std::move(help),
                .fallback = std::move(fallback),
                .set = [&config, set](const std::string& text) { set(config, text); },
                .group = kOtherSystems};
  };
  std::vector<Flag> flags{
      flag("variable_consistency",
           "strong, or relaxed: same as --variable-update replicated:consistency=relaxed", "strong",
           set_consistency),
      flag("staged_vars", "same as --variable-update parameter_server:staged=true", "false",
           set_staged),
      flag("ps_placement",
           "first, greedy or split: same as --variable-update parameter_server:placement=...",
           "first", set_placement),
      flag("cross_replica_sync",
           "--nocross-replica-sync: same as --variable-update parameter_server:sync=false", "true",
           set_cross_replica_sync),
      flag("local_parameter_device",
           "where weights are kept: gpu (first device) or cpu (with --device cpu only)", "gpu",
           set_local_parameter_device),
      flag("kungfu", "sync-sgd, async-sgd or sma: same as --variable-update with that value", "",
           set_kungfu),
      flag("compact_gradient_transfer", "same as --gradient-wire fp16", "false", set_compact),
      flag("allreduce_merge_scope", "gradients per exchange, whatever their sizes; 1: in buckets",
           "1", set_merge_scope)};
  flags[1].boolean = true;
  flags[3].boolean = true;
  flags[5].aliases = "kf_optimizer";
  flags[6].boolean = true;
  flags[6].aliases = "fp16_allreduce";
  return flags;
}

}  // namespace penstock
