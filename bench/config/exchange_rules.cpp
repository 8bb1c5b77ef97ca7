// SPDX-License-Identifier: Apache-2.0
#include "bench/config/exchange_rules.h"

#include <fmt/format.h>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/collectives/all_reduce_spec.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

/// True if the spec uses NCCL for tensors of all sizes, in one piece.
bool is_nccl(const std::string& spec) {
  return !spec.empty() &&
         collectives::parse_all_reduce_spec(spec, "--all-reduce-spec") ==
             collectives::AllReduceSpec{{.algorithm = std::string(collectives::kNccl)}};
}

}  // namespace

collectives::AllReducePlan all_reduce_plan(const std::string& spec, std::string_view flag) {
  collectives::AllReducePlan plan;
  for (const collectives::AllReduceRange& range : collectives::parse_all_reduce_spec(spec, flag)) {
    if (range.algorithm == collectives::kNccl) {
      throw ConfigError(
          "{} is '{}', and NCCL exchanges the memory of GPUs, with --device gpu, only; use xring",
          flag, spec);
    }
    plan.push_back({&find_entry(collectives::all_reduce_table(), range.algorithm), range.shards,
                    range.max_elements});
  }
  return plan;
}

bool chooses_exchange(const RunConfig& config) {
  return !config.all_reduce_spec.empty() || config.gradient_wire != to_string(WireFormat::f32);
}

void refuse_unfit_exchange(const RunConfig& config) {
  if (!chooses_exchange(config)) return;
  const bool by_spec = !config.all_reduce_spec.empty();
  const std::string said = by_spec
                               ? fmt::format("--all-reduce-spec is '{}'", config.all_reduce_spec)
                               : fmt::format("--gradient-wire is {}", config.gradient_wire);
  const UpdateEntry* const update = entry_of(update_table(), config.variable_update);
  if (update == nullptr || !update->all_reduces) {
    throw ConfigError(
        "{}, and --variable-update {} does not all-reduce gradients; use replicated or horovod, or "
        "leave it out",
        said, config.variable_update);
  }
  if (!by_spec) return;
  if (!exchanges_on_gpus(config)) {
    static_cast<void>(all_reduce_plan(config.all_reduce_spec, "--all-reduce-spec"));  // throws
  } else if (!is_nccl(config.all_reduce_spec)) {
    throw ConfigError(
        "{}, which is for devices that use host memory, but --device is {}; use nccl, or leave it "
        "out",
        said, config.device);
  }
}

bool exchanges_on_gpus(const RunConfig& config) {
  const BackendEntry* const backend = entry_of(backend_table(), config.device);
  return backend != nullptr && backend->exchanges_gradients;
}

ExchangeSpec exchange_spec(const RunConfig& config) {
  return {.wire = parse_wire_format(config.gradient_wire, "--gradient-wire"),
          .nccl = is_nccl(config.all_reduce_spec)};
}

std::int32_t ranks_of_a_group(std::int32_t ranks, std::int32_t neighbours) {
  return neighbours < ranks ? neighbours : (ranks + 1) / 2;
}

collectives::ExchangeChoice exchange_choice(const RunConfig& config, std::int32_t ranks,
                                            std::int32_t neighbours, Counter* nonfinite) {
  collectives::ExchangeChoice choice{
      .local_ranks = ranks_of_a_group(ranks, neighbours),
      .wire = parse_wire_format(config.gradient_wire, "--gradient-wire"),
      .nonfinite = nonfinite};
  if (!config.all_reduce_spec.empty()) {
    choice.method = collectives::ExchangeMethod::links;
    choice.plan = all_reduce_plan(config.all_reduce_spec, "--all-reduce-spec");
  }
  return choice;
}

}  // namespace penstock
