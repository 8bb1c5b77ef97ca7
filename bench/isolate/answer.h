// SPDX-License-Identifier: Apache-2.0
// The answer as data, for programs that tune a loader: the cause, what to try next, what was ruled
// out and by which figure, and when to stop. Sentences and JSON are made from it. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/isolate/isolation.h"

namespace penstock::isolate {

enum class CauseKind : unsigned char {
  none,     ///< input costs nothing that matters
  unknown,  ///< the measurement gave no verdict
  edges,    ///< this and the next three as in WaitCause: batches come at the wrong time
  in_turn,
  uneven,
  growing,
  many_arrays,   ///< a batch has many arrays, each of which is passed on
  stage,         ///< a stage of the feeder has too little capacity
  delivery,      ///< producers in other processes, or the network
  interference,  ///< feeding slows the steps themselves down
  unsaturated    ///< no stage of the feeder is busy, yet it supplies no more
};
std::string_view to_string(CauseKind kind);

struct Cause {
  CauseKind kind = CauseKind::unknown;
  std::string where;         ///< stage, side of the delivery, or part of the loop; empty: no cause
  double share_percent = 0;  ///< of what input adds to a step
};
Cause cause_of(const Isolation& found);

/// A figure and what its ends are, in words.
struct Figure {
  double value = 0, low = 0, high = 0;
  std::string ends;
};

/// Where a gain comes from.
enum class Basis : unsigned char {
  predicted,  ///< from measured times of the present setting
  at_most,    ///< a bound: what remains if this cost nothing
  measured,   ///< in blocks, which may have chosen it or leave it open
  confirmed   ///< surely a gain, in blocks that did not choose it
};
std::string_view to_string(Basis basis);

/// A change to try next.
struct Candidate {
  std::vector<SettingChange> settings;  ///< `--vary` takes each; empty: work on code or machines
  std::string text;
  double img_per_s = 0;
  Figure gain_percent;  ///< of the rate
  Basis basis = Basis::predicted;
};

/// What cannot help, and the figure that shows it.
struct RuledOut {
  enum class Kind : unsigned char {
    cost_part,  ///< in per cent of a step; at most the limit
    stage,      ///< the rate that it could supply; at least the limit
    setting     ///< its gain in per cent; at most the limit
  };
  Kind kind = Kind::cost_part;
  std::string name;
  Figure figure;
  double limit = 0;
};
std::string_view to_string(RuledOut::Kind kind);

/// What a program that tunes the loader does next.
enum class NextStep : unsigned char { stop, measure_again, try_setting, change_code };
std::string_view to_string(NextStep step);

struct Answer {
  Cause cause;
  std::vector<Candidate> candidates;  ///< best first, bounds last
  std::vector<RuledOut> ruled_out;
  NextStep next = NextStep::measure_again;
  /// There is a verdict, and no candidate whose gain may exceed the margin.
  bool done = false;
};
Answer answer_of(const Isolation& found);

}  // namespace penstock::isolate
