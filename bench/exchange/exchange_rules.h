// SPDX-License-Identifier: Apache-2.0
// How the ranks of a run exchange, by its configuration. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/run_config.h"
#include "dataflow/probe.h"
#include "trainer/backend.h"
#include "trainer/collectives/exchange_choice.h"

namespace penstock {

/// The algorithms of a spec; throws ConfigError, which names `flag`, also where NCCL is one of
/// them: it exchanges on GPUs only.
AllReducePlan all_reduce_plan(const std::string& spec, std::string_view flag);

/// Throws ConfigError where --all-reduce-spec or --gradient-wire asks for what the update or the
/// device does not do.
void refuse_unfit_exchange(const RunConfig& config);

/// Does the configuration say how gradients are exchanged?
bool chooses_exchange(const RunConfig& config);

/// Whether the device's backend exchanges gradients itself, as that of GPUs does: algorithms over
/// links are for memory of the host.
bool exchanges_on_gpus(const RunConfig& config);
/// What the backend is told.
ExchangeSpec exchange_spec(const RunConfig& config);

/// `ranks` of all processes, `neighbours` on this host. The counter outlives the exchange.
ExchangeChoice exchange_choice(const RunConfig& config, std::int32_t ranks, std::int32_t neighbours,
                               Counter* nonfinite);

/// Ranks of a group of hierarchical algorithms: those of a host, or half of all where they are on
/// one.
std::int32_t ranks_of_a_group(std::int32_t ranks, std::int32_t neighbours);

}  // namespace penstock
