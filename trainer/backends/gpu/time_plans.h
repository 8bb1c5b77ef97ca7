// SPDX-License-Identifier: Apache-2.0
// Times engines of the DNN library on the device at hand.
#pragma once

#include <vector>

#include "trainer/backends/gpu/driver.h"
#include "trainer/backends/gpu/plan_book.h"

namespace penstock::gpu {

/// Runs every candidate on random operands and returns the fastest, with the time of one run.
/// The best few take turns, so that a clock that changes meanwhile favours none. Candidates that
/// fail to build or to run are entered in the book and passed over; throws DeviceError if all do,
/// and DeviceLost if the device works no more after a failure. Takes memory for the operands while
/// it runs.
PlanChoice fastest_of(const DnnGraph& graph, std::vector<Candidate> candidates, Driver& driver,
                      PlanBook& book);

/// Bytes that a copy within the device's memory reads and writes in a microsecond. Takes memory for
/// it while it runs.
double time_copies(Driver& driver);

}  // namespace penstock::gpu
