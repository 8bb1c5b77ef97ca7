// SPDX-License-Identifier: Apache-2.0
// What would make a feeder keep up: more threads, more cores, deeper queues, others' help; each
// with the rate that measured times predict for it. Pure functions.
//
// A change is predicted by replaying measured times through the queue between feeder and device:
// the unconsumed feeder's times a step on one side, the ceiling's on the other. The same replay of
// what is there now says how much it leaves unexplained (interference, mostly); predictions are
// scaled by that, and never up: nothing takes more from a feeder than it supplies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/isolate/diagnosis.h"
#include "bench/isolate/isolation.h"

namespace penstock {

struct Cure {
  std::string text;      ///< what to do and what it would bring, in a sentence
  std::string change;    ///< flags that this machine can try; empty: it cannot
  RunConfig config;      ///< with them
  double img_per_s = 0;  ///< predicted
};

struct Outlook {
  std::vector<ScalingPoint> supply_curve;
  std::optional<ScalingLaw> law;
  std::optional<ThreadsNeeded> cores_per_device;
  std::vector<Prediction> depths;
  std::vector<Cure> cures;       ///< best first
  double unexplained_share = 0;  ///< 1 - measured / replayed, of the coupled rate as it is
};

/// What predictions are made from. `supplies` are unconsumed rows by threads, ascending, the one
/// with the coupled row's threads among them; empty: nothing can be predicted.
struct Evidence {
  const Row& ceiling;
  const Row& coupled;
  std::vector<const Row*> supplies;
  const InputCostFinding& cost;
  const Diagnosis& diagnosis;
  const std::optional<DeliveryFinding>& delivery;  ///< none: it does not receive
  double margin = 0.01;
  std::int32_t cores = 1;       ///< usable ones of this machine
  bool threads_matter = false;  ///< the feeder's rate depends on --feeder-threads
  std::uint64_t seed = 1;
};
Outlook look_ahead(const Evidence& evidence);

}  // namespace penstock
