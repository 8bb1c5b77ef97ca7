// SPDX-License-Identifier: Apache-2.0
// Which configurations may be compared, and what tells them apart. Pure functions.
#pragma once

#include <vector>

#include "bench/config/run_config.h"

namespace penstock {

/// True if both configurations train in the same way, so that only feeding can make their rates
/// differ. All keys must be equal, except `fake_location`, the keys that only feeders read and the
/// keys that do not affect the measurement. If the loops differ, so may device_slots.
bool same_trainer(const RunConfig& a, const RunConfig& b);

/// The keys that tell configurations apart, in table order, always with `fake_location`. Needs at
/// least one configuration.
std::vector<const ConfigKey*> varied_keys(const std::vector<RunConfig>& configurations);

/// True if the batches of its feeder cost nothing. False for feeders that this program lacks.
bool is_ceiling(const RunConfig& config);

}  // namespace penstock
