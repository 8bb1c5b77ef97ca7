// SPDX-License-Identifier: Apache-2.0
// Times engines of the DNN library on the device at hand.
#pragma once

#include <span>

#include "trainer/backends/gpu/driver.h"
#include "trainer/backends/gpu/plan_book.h"

namespace penstock::gpu {

/// Runs every candidate on random operands, a few times each, and returns the one with the shortest
/// median, with its time. Candidates that fail to build or to run are passed over; throws
/// DeviceError when all do. Takes memory for the operands while it runs.
PlanChoice fastest_of(const DnnGraph& graph, std::span<const Candidate> candidates, Driver& driver);

/// Bytes that a copy within the device's memory reads and writes in a microsecond. Takes memory for
/// it while it runs.
double time_copies(Driver& driver);

}  // namespace penstock::gpu
