// SPDX-License-Identifier: Apache-2.0
// The folder that `penstock isolate` leaves its findings in.
#pragma once

#include <filesystem>

#include "bench/isolate/isolation.h"

namespace penstock {

/// results.json alone: after each run, so that a crash keeps what was measured. Throws DataError.
void write_runs(const SweepResult& sweep, const std::filesystem::path& folder);

/// isolation.json, report.html and its figures, and the runs as every report of a sweep writes
/// them. Throws DataError.
void write_isolation_files(const Isolation& found, const std::filesystem::path& folder);

}  // namespace penstock
