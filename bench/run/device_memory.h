// SPDX-License-Identifier: Apache-2.0
// The memory of the devices of a run.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/record/run_result.h"
#include "dataflow/clock.h"

namespace penstock {

class RunParts;

/// The memory of each device between two moments. Of GPUs it is what the backend saw in use there,
/// by all programs, in at most `parts` parts; of other devices, what the run has allocated there.
std::vector<MemoryUse> device_memory(const RunParts& run, Time from, Time to, std::size_t parts);

}  // namespace penstock
