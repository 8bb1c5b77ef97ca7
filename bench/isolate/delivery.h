// SPDX-License-Identifier: Apache-2.0
// Whose fault it is where a feeder receives from other processes: by what batches say of their own
// times, by how busy receivers are, and by the ladder's rungs. Pure functions.
//
// By operational laws, with X batches a second of k producers that spend m on each, a producer is
// busy X m / k of its time; and by Little's, X w batches lie where each spends w. Receivers that
// wait for messages blame the producers where those were busy, and had no batch ready that was not
// sent; else what lies between.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/isolate/diagnosis.h"
#include "bench/isolate/isolation.h"

namespace penstock {

/// Of a feeder whose batches come from outside, by its coupled runs and the ladder's rungs, if
/// there are any; none where no run was usable. What `diagnosis` calls the producer's becomes the
/// network's there, where it is.
std::optional<DeliveryFinding> find_delivery(const Row& coupled,
                                             const std::vector<RungFinding>& ladder,
                                             Diagnosis& diagnosis);

/// Who is to blame and why, in sentences; what each side could do; what is not known.
std::vector<std::string> delivery_sentences(const DeliveryFinding& found);

/// Does it hold up what the run's receivers receive: a producer, or the network?
bool is_outside(const StageFinding& stage);

}  // namespace penstock
