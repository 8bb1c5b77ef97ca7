// SPDX-License-Identifier: Apache-2.0
// Flags of other systems that say how an update works. Each stands for an update, or for an option
// of the one that --variable-update names.
#pragma once

#include <vector>

#include "bench/flags.h"
#include "bench/run_config.h"

namespace penstock {

/// --variable-consistency, --staged-vars, --ps-placement, --cross-replica-sync,
/// --local-parameter-device, --kungfu, --compact-gradient-transfer and --allreduce-merge-scope.
/// They change what other flags set, such as `config.variable_update`, so that they have to be
/// applied behind those.
std::vector<Flag> update_flags(RunConfig& config);

}  // namespace penstock
