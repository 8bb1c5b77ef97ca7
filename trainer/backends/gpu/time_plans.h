// SPDX-License-Identifier: Apache-2.0
// Measures how long plans and copies take on the device.
#pragma once

#include <vector>

#include "trainer/backends/gpu/plan_book.h"

namespace penstock::gpu {

/// Runs every candidate on random operands and returns the fastest, with the time of one run. The
/// best few take turns, so that a change of the clock rate favours none of them. With `records`,
/// runs that are shorter than the host's time to enqueue them are launched as a recording.
/// Candidates that fail to build or to run are entered in the book and skipped. Throws DeviceError
/// if all fail, and DeviceLost if the device stops working after a failure. Allocates memory for
/// the operands while it runs.
PlanChoice fastest_of(const DnnGraph& graph, std::vector<Candidate> candidates, Driver& driver,
                      PlanBook& book, bool records = true);

/// Bytes that a copy inside the device's memory reads and writes in a microsecond. Allocates memory
/// for the copy while it runs.
double time_copies(Driver& driver);

}  // namespace penstock::gpu
