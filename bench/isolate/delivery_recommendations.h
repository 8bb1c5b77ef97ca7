// SPDX-License-Identifier: Apache-2.0
// What would help a feeder that receives from other processes: more producers, a faster transport,
// more receivers. Pure functions.
//
// Only one of n receivers takes messages at a time, for r seconds per image. It then checks and
// copies for u seconds per image. So n receivers take at most min(1 / r, n / (r + u)).
#pragma once

#include <cstdint>
#include <vector>

#include "bench/isolate/delivery.h"
#include "bench/isolate/predictions.h"

namespace penstock::isolate {

/// What the recommendations are computed from. Rates are in images per second, of all devices
/// together.
struct DeliveryGround {
  const RunConfig& config;
  const analysis::Diagnosis& diagnosis;
  const DeliveryFinding& delivery;
  double now = 0;          ///< rate with the feeder
  double demand = 0;       ///< rate that the trainer could consume
  std::int32_t cores = 1;  ///< usable cores
};

/// Returns the cures for the side to blame, best first. They include recommendations that gain
/// nothing.
std::vector<Recommendation> delivery_recommendations(const DeliveryGround& ground);

}  // namespace penstock::isolate
