// SPDX-License-Identifier: Apache-2.0
// One run as JSON: what `penstock run --json` prints and what a sweep reads back. A sweep as JSON:
// what it leaves behind, and what its flat forms are made of. Both can be read back.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/runner.h"
#include "bench/sweep_result.h"

namespace penstock {

/// Of both forms. 1 lacks what stages and queues did, and which keys were varied.
inline constexpr int kResultsSchema = 2;

/// Keys of RunConfig, as numbers, booleans and strings.
nlohmann::ordered_json to_json(const RunConfig& config);
nlohmann::ordered_json to_json(const RunResult& result);

nlohmann::ordered_json to_json(const Environment& environment);
/// A row of the sweep without its repetitions. What is not known is null.
nlohmann::ordered_json to_json(const SweepResult& sweep, const Row& row);
/// Everything, in the form of results.json.
nlohmann::ordered_json to_json(const SweepResult& sweep);

// Reading throws DataError that says which value is wrong and what was expected, for texts of newer
// programs, foreign ones and damaged ones. What schema 1 lacks is empty.
RunConfig config_from_json(const nlohmann::ordered_json& json);
Environment environment_from_json(const nlohmann::ordered_json& json);
RunResult result_from_json(const nlohmann::ordered_json& json);
/// Figures of rows are computed anew from their repetitions.
SweepResult sweep_from_json(const nlohmann::ordered_json& json);

}  // namespace penstock
