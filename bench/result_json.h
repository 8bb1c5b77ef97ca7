// SPDX-License-Identifier: Apache-2.0
// One run as JSON: what `penstock run --json` prints and what a sweep reads back.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/runner.h"

namespace penstock {

/// Keys of RunConfig, as numbers, booleans and strings.
nlohmann::ordered_json to_json(const RunConfig& config);
nlohmann::ordered_json to_json(const RunResult& result);

/// Throws DataError when `json` is not what to_json writes.
RunConfig config_from_json(const nlohmann::ordered_json& json);
RunResult result_from_json(const nlohmann::ordered_json& json);

}  // namespace penstock
