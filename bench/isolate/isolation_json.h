// SPDX-License-Identifier: Apache-2.0
// Converts the findings of `penstock isolate` to isolation.json. The sweep with every step time
// follows the findings.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/isolate/isolation.h"

namespace penstock::isolate {

/// Schema 1. Unknown numbers and infinite interval ends are null.
nlohmann::ordered_json to_json(const Isolation& found);
nlohmann::ordered_json to_json(const statistics::Estimate& estimate);
nlohmann::ordered_json to_json(const BlockNoise& noise);

}  // namespace penstock::isolate
