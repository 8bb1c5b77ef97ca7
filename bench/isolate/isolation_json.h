// SPDX-License-Identifier: Apache-2.0
// What was isolated, as isolation.json: the findings, and behind them the sweep with every step
// time.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/isolate/isolation.h"

namespace penstock {

/// Schema 1. Numbers that are not known are null, ends of intervals that are infinite as well.
nlohmann::ordered_json to_json(const Isolation& found);
nlohmann::ordered_json to_json(const Estimate& estimate);
nlohmann::ordered_json to_json(const BlockNoise& noise);

}  // namespace penstock
