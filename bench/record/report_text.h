// SPDX-License-Identifier: Apache-2.0
// Texts that all reports share: what was measured, the figures of each row, how to read them. Plain
// text; reports in markup formats must escape it.
#pragma once

#include <string>
#include <vector>

#include "bench/document/document.h"
#include "bench/record/sweep_result.h"

namespace penstock {

/// One or two sentences on what was measured.
std::string headline(const SweepResult& sweep);

/// Sentences on how to read the table. Explains only statuses that occur.
std::vector<std::string> how_to_read(const SweepResult& sweep);

/// The settings in which the row differs from the others: "zmq-consume, num-gpus 2".
std::string label_of(const SweepResult& sweep, const Row& row);
/// The feeder of a run with all options; a loader by its name, and what else tells its runs apart:
/// "queue:crop=center", "train.py:make_loader, args='num_workers=2'".
std::string full_label(const RunConfig& config);
/// The feeder of a run, without its options if they are long: "queue:crop=center",
/// "zmq-consume:...", "train.py:make_loader".
std::string feeder_label(const RunConfig& config);

/// The rows as text: varied keys, img/s, input cost, ms a step, idle share, status.
document::Table text_table(const SweepResult& sweep);

/// Remarkable facts about rows, each once: "queue; zmq-consume: fed by ...", "all rows: ...". They
/// include the reason why a row has no cost.
std::vector<std::string> notes_of(const SweepResult& sweep);

/// "43.2 (41.8 to 44.5)": a 95 % interval, with "?" for unknown ends; "43.2 (41.8..44.5)": lowest
/// and highest; "43.2 (once)": a single measurement.
std::string format_estimate(const statistics::Estimate& estimate, int decimals);
/// A cost in one line, to paste into a chat or an issue: "queue: 22.8 % lost (20.8 to 58.7), 2
/// cores, 2026-11-22". It says if the machine was `busy` with other programs.
std::string paste_line(const std::string& label, const statistics::CostEstimate& cost,
                       const Environment& environment, bool busy);
/// What the ends of the estimate are: "95 % interval" or "lowest and highest".
std::string_view ends_of(const statistics::Estimate& estimate);

/// "43.2 % (41.8 to 44.5)", "43.2 % (41.8..44.5 in 3 rounds)". `round`: the word for a round.
std::string cost_text(const statistics::CostEstimate& cost, std::string_view round = "round");
/// For a cost whose verdict is undecided: "20.8 to 58.7 % lost in 3 rounds; they differ, measure
/// again".
std::string undecided_text(const statistics::CostEstimate& cost, std::string_view round = "round");

/// Rows that have an input cost and are not ceilings, highest cost first.
std::vector<const Row*> rows_by_cost(const SweepResult& sweep);
/// The cost of a row's feeder: "queue loses 43.2 % (41.8 to 44.5) of what the device could
/// train: 27.55 ms of each step." Empty for ceilings and rows without a cost.
std::string cost_sentence(const SweepResult& sweep, const Row& row);

/// "median (low..high)" with `decimals` decimals, never "-0.0".
std::string format_spread(const Spread& spread, int decimals);
std::string format_fixed(double value, int decimals);

/// The environment as lines of "name" and "value".
std::vector<std::pair<std::string, std::string>> environment_lines(const SweepResult& sweep);

}  // namespace penstock
