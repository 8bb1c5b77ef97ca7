// SPDX-License-Identifier: Apache-2.0
// Results that an earlier run or sweep left behind.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sweep_result.h"

namespace penstock {

/// Reads results.json of a sweep (or its folder), the sweep in isolation.json, what `penstock run
/// --json` printed (one object, or several, one a line), or the steps that a run left which did not
/// end. Throws ConfigError where there is no such
/// file, DataError, with its name and what is wrong, for texts that are damaged, newer or foreign.
SweepResult read_saved_results(const std::filesystem::path& path);

/// The same for a text; `name` is how messages call it.
SweepResult parse_saved_results(std::string_view text, std::string_view name);

/// Runs as a sweep, for reports of them: those with the same configuration but for the seed are
/// repetitions of one row. At least one. An empty command: that of the first.
SweepResult sweep_of(std::vector<RunResult> results, Environment environment,
                     std::string command = {});

}  // namespace penstock
