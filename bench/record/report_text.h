// SPDX-License-Identifier: Apache-2.0
// What all reports for people say in the same words: what was measured, each row's figures, how to
// read them. Plain text; whoever puts it into a page escapes it.
#pragma once

#include <string>
#include <vector>

#include "bench/sweep_result.h"

namespace penstock {

/// What was measured, in a sentence or two.
std::string headline(const SweepResult& sweep);

/// How to read the table, a sentence each; of statuses, those that occur.
std::vector<std::string> how_to_read(const SweepResult& sweep);

/// What tells a row from the others: "zmq-consume, num-gpus 2".
std::string label_of(const SweepResult& sweep, const Row& row);

/// The heads of the columns of text_cells.
std::vector<std::string> text_columns(const SweepResult& sweep);
/// One row of the table, as text: varied keys, img/s, input cost, ms a step, idle share, status.
std::vector<std::string> text_cells(const SweepResult& sweep, const Row& row);

/// What is remarkable about rows, each thing once: "queue; zmq-consume: fed by ...", "all rows:
/// ...". Why a row has no cost is among them.
std::vector<std::string> notes_of(const SweepResult& sweep);

/// "43.2 (41.8 to 44.5)": a 95 % interval, whose ends are "?" if they are not known;
/// "43.2 (41.8..44.5)": the lowest and the highest; "43.2 (once)".
std::string format_estimate(const Estimate& estimate, int decimals);
/// A cost in one line, for a chat or an issue: "queue: 22.8 % lost (20.8 to 58.7), 2 cores,
/// 2026-11-22".
std::string paste_line(const std::string& label, const CostEstimate& cost,
                       const Environment& environment);
/// What its ends are: "95 % interval", "lowest and highest".
std::string_view ends_of(const Estimate& estimate);

/// "43.2 % (41.8 to 44.5)", "43.2 % (41.8..44.5 in 3 rounds)". `round`: what reports call one.
std::string cost_text(const CostEstimate& cost, std::string_view round = "round");
/// Of a cost whose verdict is undecided: "20.8 to 58.7 % lost in 3 rounds; they differ, measure
/// again".
std::string undecided_text(const CostEstimate& cost, std::string_view round = "round");

/// Rows that are no ceiling and have an input cost, the worst first.
std::vector<const Row*> rows_by_cost(const SweepResult& sweep);
/// What the feeder of a row costs: "queue loses 43.2 % (41.8 to 44.5) of what the device could
/// train: 27.55 ms of each step." Empty for ceilings and rows without a cost.
std::string cost_sentence(const SweepResult& sweep, const Row& row);

/// "median (low..high)", with as many decimals as asked for and no "-0.0".
std::string format_spread(const Spread& spread, int decimals);
std::string format_fixed(double value, int decimals);

/// The environment as lines of "name" and "value".
std::vector<std::pair<std::string, std::string>> environment_lines(const SweepResult& sweep);

}  // namespace penstock
