// SPDX-License-Identifier: Apache-2.0
// The memory of child processes, such as a loader's workers, and how fast it grows.
#pragma once

#include <map>
#include <string>

#include "dataflow/machine/processes.h"

namespace penstock {

/// The memory of the descendants of this process now.
MemoryOfProcesses child_memory();

/// Adds to `facts` the memory that child processes hold `after` the window and how fast it grew, in
/// all and for each worker process. Adds nothing without child processes. Returns a warning if they
/// would fill `room` bytes soon, else an empty text.
std::string add_child_memory(const MemoryOfProcesses& before, const MemoryOfProcesses& after,
                             double window_s, double room, std::map<std::string, double>& facts);

}  // namespace penstock
