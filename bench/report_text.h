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
/// One row of the table, as text: varied keys, img/s, input cost, ms a step, status, note.
std::vector<std::string> text_cells(const SweepResult& sweep, const Row& row);

/// Why the row is what it is: its reason, or what is remarkable about it.
std::string note_of(const SweepResult& sweep, const Row& row);

/// "median (low..high)", with as many decimals as asked for and no "-0.0".
std::string format_spread(const Spread& spread, int decimals);
std::string format_fixed(double value, int decimals);

/// The environment as lines of "name" and "value".
std::vector<std::pair<std::string, std::string>> environment_lines(const SweepResult& sweep);

}  // namespace penstock
