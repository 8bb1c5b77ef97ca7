// SPDX-License-Identifier: Apache-2.0
// What would help where batches come from other processes: more producers, another way to this one,
// more receivers. Pure functions.
//
// One of n receivers takes messages at a time, for r seconds an image, and then checks and copies
// for u: n of them take at most min(1 / r, n / (r + u)).
#pragma once

#include <cstdint>
#include <vector>

#include "bench/isolate/delivery.h"
#include "bench/isolate/predictions.h"

namespace penstock {

/// What it goes by: rates in images a second, of all devices together.
struct DeliveryGround {
  const RunConfig& config;
  const Diagnosis& diagnosis;
  const DeliveryFinding& delivery;
  double now = 0;          ///< with the feeder
  double demand = 0;       ///< of the trainer
  std::int32_t cores = 1;  ///< usable ones
};

/// For its blame; those that bring nothing among them. Best first.
std::vector<Cure> delivery_cures(const DeliveryGround& ground);

}  // namespace penstock
