// SPDX-License-Identifier: Apache-2.0
// Flags of other systems that control the update. Each stands for an update, or for an option of
// the update that --variable-update names.
#pragma once

#include <vector>

#include "bench/config/flags.h"
#include "bench/config/run_config.h"

namespace penstock {

/// --variable-consistency, --staged-vars, --ps-placement, --cross-replica-sync,
/// --local-parameter-device, --kungfu, --compact-gradient-transfer and --allreduce-merge-scope.
/// They change values of other flags, such as `config.variable_update`, so apply them after those.
std::vector<Flag> update_flags(RunConfig& config);

}  // namespace penstock
