// SPDX-License-Identifier: Apache-2.0
// What reports of a sweep say first, and why its rows cost what they cost. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/figures/cost_split.h"
#include "bench/isolate/diagnosis.h"
#include "bench/pages/page.h"
#include "bench/sweep_result.h"

namespace penstock {

/// The answer to "does feeding keep up?", a sentence or two each: what the devices would train and
/// what the feeders that do not keep up supply; what costs nothing measurable; each row whose data
/// decide nothing (cost_sentence). Of a sweep without exactly one ceiling: each row's
/// cost_sentence.
std::vector<std::string> answer_of(const SweepResult& sweep);

/// Which stage holds up a row whose verdict is that it costs something, with its stages in any
/// case. None: it has no cost, or its runs are too short.
std::optional<Diagnosis> diagnosis_of(const SweepResult& sweep, const Row& row);

/// One sentence for each row that has a cost: the worst first.
std::vector<VerdictLine> verdict_of(const SweepResult& sweep);

/// The cost of a row by what its device waited for, from the step times of each round. None where
/// the runs did not record it.
std::vector<SplitBar> splits_of(const SweepResult& sweep, const std::vector<const Row*>& rows);

}  // namespace penstock
