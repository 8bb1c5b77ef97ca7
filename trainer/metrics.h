// SPDX-License-Identifier: Apache-2.0
// What a replica measures.
#pragma once

#include <cstdint>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/backend.h"

namespace penstock {

/// One step of one rank.
struct StepTimes {
  Nanoseconds input_wait{};  ///< host blocked waiting for a batch: a symptom, not a cost
  Nanoseconds completion{};  ///< on the device, since the leg began
  StepResult result{};
};

/// Steps taken without a pause, with the device idle at both ends.
struct Leg {
  Time begin{}, end{};
  std::vector<StepTimes> steps;
};

}  // namespace penstock
