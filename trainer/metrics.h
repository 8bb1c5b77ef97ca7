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
  Time asked{};              ///< when the host wanted the batch
  Nanoseconds enqueue{};     ///< host enqueued the step, after it had the batch
  Nanoseconds input_wait{};  ///< host blocked waiting for a batch: a symptom, not a cost
  Nanoseconds start{};       ///< on the device, since the leg began: its batch has been copied
  Nanoseconds completion{};  ///< the same: the step is done
  /// What the device did no step in, between the end of the step before and the start of this one;
  /// 0 for the first of a leg. It waited for a batch, for the copy of it, or for the host to
  /// enqueue the step.
  Nanoseconds device_idle{};
  Nanoseconds offered{};  ///< the batch was ready on the host's side, since the leg began
  Nanoseconds copied{};   ///< it lay on the device, the same; not before it was offered
  StepResult result{};
};

/// Steps taken without a pause, with the device idle at both ends. Device times count from an event
/// that is recorded just before `begin` is read, on an idle stream: that is how they are mapped to
/// the host's clock, late by what a device needs to reach an event, some microseconds.
struct Leg {
  Time begin{}, end{};
  std::vector<StepTimes> steps;
};

}  // namespace penstock
