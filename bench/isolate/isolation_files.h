// SPDX-License-Identifier: Apache-2.0
// Writes the result folder of `penstock isolate`.
#pragma once

#include <filesystem>

#include "bench/isolate/isolation.h"

namespace penstock::isolate {

/// Writes only results.json. Called after each run, so that a crash keeps all measured runs. Throws
/// DataError.
void write_runs(const SweepResult& sweep, const std::filesystem::path& folder);

/// Writes isolation.json, report.html with its figures, and the same files of runs as every report
/// of a sweep. Throws DataError.
void write_isolation_files(const Isolation& found, const std::filesystem::path& folder);

}  // namespace penstock::isolate
