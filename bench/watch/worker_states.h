// SPDX-License-Identifier: Apache-2.0
// What the workers of a loader do at a moment, seen from outside: by the kernel's files of a
// process, which is neither stopped nor traced.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace penstock::watch {

/// Such as "sleeping", and how often workers were seen so, or which share of their time.
using WorkerStates = std::map<std::string, double>;
inline constexpr std::string_view kWaitsForLock = "waiting for a lock",  // that processes share
    kWaitsForThreads = "waiting for its threads",  // for a lock inside the process, too
    kWaitsForNetwork = "waiting for the network", kSleeps = "sleeping",
                                  kReadsFiles = "reading files", kComputes = "computing",
                                  kWaitsForCore = "waiting for a processor";

/// Of the main thread of a child of `parent`. Empty: there is no such child, or the kernel does not
/// show its system calls to this user.
std::string_view state_of_worker(std::int32_t pid, std::int64_t parent);

}  // namespace penstock::watch
