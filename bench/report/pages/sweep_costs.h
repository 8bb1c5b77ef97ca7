// SPDX-License-Identifier: Apache-2.0
// The first answer in reports of a sweep, and the reasons for the cost of each row. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/analysis/diagnosis.h"
#include "bench/document/document.h"
#include "bench/record/sweep_result.h"
#include "bench/report/figures/figures.h"

namespace penstock::report {

/// Answers "does feeding keep up?" in one or two sentences each: what the devices would train, and
/// what the feeders that do not keep up supply; what costs nothing measurable; each row whose data
/// cannot support a verdict (cost_sentence); rows that failed; that the machine was busy. Without
/// exactly one ceiling, each row has a cost_sentence.
std::vector<std::string> answer_of(const SweepResult& sweep);

/// The stages of a row, and the stage that limits it if its verdict is a cost. None: the row has no
/// cost, or its runs are too short.
std::optional<analysis::Diagnosis> diagnosis_of(const SweepResult& sweep, const Row& row);

/// One sentence per row with a cost, highest cost first.
std::vector<document::VerdictLine> verdict_of(const SweepResult& sweep);

/// Splits the cost of a row by what its device waited for, from the step times of each round. Empty
/// if the runs did not record this.
std::vector<SplitBar> splits_of(const SweepResult& sweep, const std::vector<const Row*>& rows);

}  // namespace penstock::report
