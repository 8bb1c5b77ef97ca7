// SPDX-License-Identifier: Apache-2.0
// Derives from the configuration how the ranks of a run exchange gradients. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/config/run_config.h"
#include "dataflow/probe.h"
#include "trainer/backend.h"
#include "trainer/collectives/exchange_choice.h"

namespace penstock {

/// Parses the algorithms of a spec. Throws ConfigError, which names `flag`, for an invalid spec and
/// for NCCL, which works on GPUs only.
collectives::AllReducePlan all_reduce_plan(const std::string& spec, std::string_view flag);

/// Throws ConfigError if the update or the device does not support the configured --all-reduce-spec
/// or --gradient-wire.
void refuse_unfit_exchange(const RunConfig& config);

/// True if the configuration chooses how gradients are exchanged.
bool chooses_exchange(const RunConfig& config);

/// True if the backend of the device exchanges gradients itself, as the GPU backend does.
/// Algorithms over links need gradients in host memory.
bool exchanges_on_gpus(const RunConfig& config);
/// The exchange settings for the backend.
ExchangeSpec exchange_spec(const RunConfig& config);

/// `ranks` of all processes, `neighbours` on this host. The counter must outlive the exchange.
collectives::ExchangeChoice exchange_choice(const RunConfig& config, std::int32_t ranks,
                                            std::int32_t neighbours, Counter* nonfinite);

/// Size of a group in hierarchical algorithms: the ranks of a host, or half of all ranks (rounded
/// up) if they share one host.
std::int32_t ranks_of_a_group(std::int32_t ranks, std::int32_t neighbours);

}  // namespace penstock
