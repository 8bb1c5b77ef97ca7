// SPDX-License-Identifier: Apache-2.0
// Finds the plan that computes a graph: in the book, or by asking the library and timing.
#pragma once

#include <memory>
#include <optional>

#include "trainer/backends/gpu/plan_book.h"

namespace penstock::gpu {

/// The best engine for a graph, from the book or by asking and timing. Enters the result in the
/// book. Empty if no engine that can run keeps the rules. Throws DeviceError if all timed engines
/// fail, and DeviceLost.
std::optional<PlanChoice> find_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                    PlanBook& book);

/// The plan of find_plan()'s choice, or of another engine if the library cannot build it. Throws
/// Unavailable if there is none, DeviceError if all fail, and DeviceLost.
std::unique_ptr<DnnPlan> make_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                   PlanBook& book);

}  // namespace penstock::gpu
