// SPDX-License-Identifier: Apache-2.0
// Runs the command of two versions in turns, and judges the pairs.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "bench/ab/versions.h"
#include "bench/record/compare.h"
#include "bench/statistics/paired.h"
#include "dataflow/clock.h"

namespace penstock::ab {

/// What is read from a run of the command.
struct Metric {
  /// "auto": the last `total images/sec: 412.3` of standard output, else the time; "time": how long
  /// the run takes; else a regular expression with one group, whose last match is a number.
  std::string text = "auto";
  bool lower_is_better = false;  ///< of the number
};

/// A number above 0 that is larger if the version is faster, and its unit in a second: "img",
/// "tokens", "runs" or "units".
struct Speed {
  double value = 0;
  std::string unit;
};

/// The speed that a run shows; empty: its output has no such number. `seconds`: how long it took.
/// Throws ConfigError if the regular expression is none, or has no group.
std::optional<Speed> speed_of(std::string_view output, double seconds, const Metric& metric);

struct TurnsPlan {
  Version base, head;
  Metric metric{};
  double margin = 0.01;   ///< changes within it do not matter
  Nanoseconds budget{};   ///< of the whole comparison
  std::size_t pairs = 0;  ///< this number, whatever the budget; 0: as many as are needed
  std::string label{};    ///< the command, as the result names it
};

/// Whether the interval of the pairs is as narrow as half of the margin. Pure.
bool suffice(std::span<const statistics::Pair> pairs, double margin);

/// One run of each without a number, then pairs of runs, the first of which changes from pair to
/// pair. It ends when the interval is as narrow as half of the margin, or when another pair would
/// exceed the budget, or if a stop is requested. After each pair `told` gets a line. Throws
/// DataError if a run fails or shows no speed, with the version's name and its last words, unless
/// there are pairs: then the comparison's only row says so.
Comparison compare_in_turns(const TurnsPlan& plan, const std::stop_token& stop,
                            const std::function<void(const std::string&)>& told);

/// The comparison of pairs of times, without a run: of base in `a` and of head in `b`, in s for
/// one unit. Pure.
Comparison comparison_of(const TurnsPlan& plan, std::span<const statistics::Pair> pairs,
                         std::string unit);

/// "feature is 3.2 % slower than main (2.5 to 3.9 %): a regression." One line for people.
std::string verdict_of(const TurnsPlan& plan, const Comparison& comparison);

}  // namespace penstock::ab
