// SPDX-License-Identifier: Apache-2.0
// The file with the steps of a run that did not complete: one line of JSON for the run, then one
// per step. A line {"window":"again"} drops the steps before it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "bench/record/environment.h"
#include "bench/record/run_result.h"
#include "bench/record/sweep_result.h"

namespace penstock {

/// The path of the steps of a run whose result goes to `out`: "result.steps.jsonl" beside
/// "result.json".
std::filesystem::path step_records_path(const std::filesystem::path& out);

/// True if `text` begins like such a file.
bool is_step_records(std::string_view text);
/// The run that saved the steps, as far as it came. Ignores an incomplete last line. Throws
/// DataError.
SweepResult parse_step_records(std::string_view text);

/// The first line of such a file.
std::string step_records_begin(const RunResult& begun, const Environment& environment);
/// A partial result without steps. `config` is resolved.
RunResult partial_result(const RunConfig& config, std::string started);
/// Computes the rates of `result` from its steps.
void add_rates(RunResult& result);

}  // namespace penstock
