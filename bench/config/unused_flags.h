// SPDX-License-Identifier: Apache-2.0
// Flags that change nothing in the runs that they were typed for.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/run_config.h"

namespace penstock {

/// A sentence for each flag among `arguments` that none of `runs` depends on. A flag with its
/// default value asks for nothing and is left out. Knows the components of the tables.
std::vector<std::string> unused_flags(std::span<const RunConfig> runs,
                                      std::span<const std::string> arguments);

/// Prints them on stderr.
void say_unused_flags(std::span<const RunConfig> runs, std::span<const std::string> arguments);

}  // namespace penstock
