// SPDX-License-Identifier: Apache-2.0
// Flags of Horovod's synthetic benchmark scripts. Other flags of Penstock set the same values.
#pragma once

#include <vector>

#include "bench/config/flags.h"
#include "bench/config/run_config.h"

namespace penstock {

/// --num-iters, --num-batches-per-iter and --no-cuda. They change `config.num_batches` and
/// `config.device`.
std::vector<Flag> horovod_flags(RunConfig& config);

}  // namespace penstock
