// SPDX-License-Identifier: Apache-2.0
// Flags of Horovod's synthetic benchmark scripts that other flags here say as well.
#pragma once

#include <vector>

#include "bench/flags.h"
#include "bench/run_config.h"

namespace penstock {

/// --num-iters, --num-batches-per-iter and --no-cuda. They change `config.num_batches` and
/// `config.device`.
std::vector<Flag> horovod_flags(RunConfig& config);

}  // namespace penstock
