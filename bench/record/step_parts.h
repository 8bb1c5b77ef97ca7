// SPDX-License-Identifier: Apache-2.0
// The parts of a step and how long each takes, as percentiles over the steps of a window. Every
// table and record gets its percentiles from here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/document/document.h"
#include "bench/record/sweep_result.h"

namespace penstock {

/// Percentiles of each part over the steps of all `runs`, with linear interpolation. The parts of a
/// step add up to it: starved, copy_exposed and late are its idle time; exchange_exposed is there
/// if an exchange was measured; compute is the rest. Empty without steps.
std::vector<PartTimes> part_times(std::span<const RunResult> runs);

/// Percentiles of `ms`, of any length, under a name.
PartTimes percentiles_of(std::string name, std::span<const double> ms);

/// The names of all parts, in the order of the tables.
std::vector<const char*> part_names();

/// "part: p50 p95 p99 max" in milliseconds, without parts that always take less than 5 us.
document::Table parts_table(std::span<const PartTimes> parts);

/// The same for every row of a sweep, over the steps of all of its repetitions that are ok. A
/// single row has no column for its label.
document::Table parts_table(const SweepResult& sweep);

/// Explains the parts.
std::string_view parts_terms();

}  // namespace penstock
