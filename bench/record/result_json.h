// SPDX-License-Identifier: Apache-2.0
// Results as JSON, to write and to read. For one run: the output of `penstock run --json`, which a
// sweep reads. For a sweep: results.json, from which the flat formats are made.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/record/run_result.h"
#include "bench/record/sweep_result.h"

namespace penstock {

/// Schema version of both forms. Schema 1 lacks stages, queues and the list of varied keys.
inline constexpr int kResultsSchema = 2;

/// The keys of RunConfig as numbers, booleans and strings.
nlohmann::ordered_json to_json(const RunConfig& config);
nlohmann::ordered_json to_json(const RunResult& result);

nlohmann::ordered_json to_json(const Environment& environment);
/// A row of the sweep without its repetitions. Unknown values are null.
nlohmann::ordered_json to_json(const SweepResult& sweep, const Row& row);
/// The whole sweep, as in results.json.
nlohmann::ordered_json to_json(const SweepResult& sweep);

/// The JSON Schema (draft 2020-12) of both forms.
nlohmann::ordered_json results_schema();

// Readers throw DataError for damaged, foreign or newer texts. It names the wrong value and what
// was expected. Fields that schema 1 lacks stay empty.
Environment environment_from_json(const nlohmann::ordered_json& json);
RunResult result_from_json(const nlohmann::ordered_json& json);
/// Recomputes the figures of rows from their repetitions.
SweepResult sweep_from_json(const nlohmann::ordered_json& json);

}  // namespace penstock
