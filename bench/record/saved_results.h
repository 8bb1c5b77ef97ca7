// SPDX-License-Identifier: Apache-2.0
// Reads the results that an earlier run or sweep saved.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record/sweep_result.h"

namespace penstock {

/// Reads one of: results.json of a sweep (or its folder); isolation.json, which contains a sweep;
/// the output of `penstock run --json` (one object, or several, one per line); the steps saved by a
/// run that did not end. Throws ConfigError if there is no such file, and DataError, with the
/// file's name and the reason, for damaged, newer or foreign texts.
SweepResult read_saved_results(const std::filesystem::path& path);

/// Reads such a text; `name` is its name in messages.
SweepResult parse_saved_results(std::string_view text, std::string_view name);

/// Combines runs into a sweep, to report them. Runs whose configurations differ only in the seed
/// become repetitions of one row. Needs at least one run. If `command` is empty, it is built from
/// the first run.
SweepResult sweep_of(std::vector<RunResult> results, Environment environment,
                     std::string command = {});

}  // namespace penstock
