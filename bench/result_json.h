// SPDX-License-Identifier: Apache-2.0
// One run as JSON: what `penstock run --json` prints and what a sweep reads back. A sweep as JSON:
// what it leaves behind, and what its flat forms are made of.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/runner.h"
#include "bench/sweep_result.h"

namespace penstock {

/// Keys of RunConfig, as numbers, booleans and strings.
nlohmann::ordered_json to_json(const RunConfig& config);
nlohmann::ordered_json to_json(const RunResult& result);

nlohmann::ordered_json to_json(const Environment& environment);
/// A row without its repetitions. What is not known is null.
nlohmann::ordered_json to_json(const Row& row);
/// Everything, in the form of results.json, schema 1.
nlohmann::ordered_json to_json(const SweepResult& sweep);

/// Throws DataError when `json` is not what to_json writes.
RunConfig config_from_json(const nlohmann::ordered_json& json);
RunResult result_from_json(const nlohmann::ordered_json& json);

}  // namespace penstock
