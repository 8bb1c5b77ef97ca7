// SPDX-License-Identifier: Apache-2.0
// What the page of a sweep says of its rows: their sentences, what a cost consists of, their notes.
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/figures/cost_split.h"
#include "bench/pages/page.h"
#include "bench/sweep_result.h"

namespace penstock {

/// One sentence for each row that is no ceiling: the worst first, then those without a cost.
std::vector<VerdictLine> verdict_of(const SweepResult& sweep);

/// The cost of a row by what its device waited for, from the step times of each round. None where
/// the runs did not record it.
std::vector<SplitBar> splits_of(const SweepResult& sweep, const std::vector<const Row*>& rows);

/// What rows have to say, each thing once: "queue; zmq-consume: fed by ...". Why a row has no cost
/// is in its sentence.
std::vector<std::string> notes_of(const SweepResult& sweep);

}  // namespace penstock
