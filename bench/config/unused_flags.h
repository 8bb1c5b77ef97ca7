// SPDX-License-Identifier: Apache-2.0
// Finds typed flags that have no effect on the runs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/config/run_config.h"

namespace penstock {

/// One sentence for each flag among `arguments` that affects none of `runs`. A flag with its
/// default value is left out. Looks components up in the component tables.
std::vector<std::string> unused_flags(std::span<const RunConfig> runs,
                                      std::span<const std::string> arguments);

/// Prints these sentences to stderr.
void say_unused_flags(std::span<const RunConfig> runs, std::span<const std::string> arguments);

}  // namespace penstock
