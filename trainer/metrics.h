// SPDX-License-Identifier: Apache-2.0
// The measurements of a replica: the times of each step, and of a leg of steps.
#pragma once

#include <cstdint>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/backend.h"

namespace penstock {

/// One step of one rank.
struct StepTimes {
  Time requested{};          ///< when the host requested the batch
  Nanoseconds enqueue{};     ///< time for the host to enqueue the step, after it has the batch
  Nanoseconds input_wait{};  ///< time blocked waiting for a batch: a symptom, not a cost
  Nanoseconds start{};       ///< on the device, since the leg began: the batch has been copied
  Nanoseconds completion{};  ///< on the device, since the leg began: the step is done
  /// Time without a step on the device, from the end of the previous step to the start of this one;
  /// 0 for the first step of a leg. The device waited for a batch, for its copy, or for the host to
  /// enqueue the step.
  Nanoseconds device_idle{};
  Nanoseconds offered{};      ///< since the leg began: the batch was ready on the host
  Nanoseconds copied{};       ///< since the leg began: the batch was on the device; >= offered
  bool begins_epoch = false;  ///< its batch is the first of a later epoch
  /// From the end of backward to the end of the exchange with other ranks, as far as it is
  /// measured.
  Nanoseconds exchange{};
  StepResult result{};
};

/// Consecutive steps without a pause; the device is idle before and after. Device times count from
/// an event that is recorded on an idle stream just before `begin` is read. This maps them to the
/// host's clock, late by the time that a device needs to reach an event (some microseconds).
struct Leg {
  Time begin{}, end{};
  std::vector<StepTimes> steps;
};

}  // namespace penstock
