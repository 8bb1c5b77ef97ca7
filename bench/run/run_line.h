// SPDX-License-Identifier: Apache-2.0
// Shows a series of runs, each in a child process, on standard error. On a terminal, a changing
// line shows the current run: its rate so far, the queue behind the feeder, and the time left for
// all runs. Elsewhere, each run prints one line at its end.
//
// Thread-safety: one thread at a time, but `running` may be called from another thread.
#pragma once

#include <cstdio>
#include <string>

#include "bench/run/live_line.h"
#include "bench/run/progress.h"

namespace penstock {

class RunLine {
 public:
  /// `single`: `out` is a terminal, and nothing else writes to it.
  RunLine(std::FILE* out, bool single) : line_(out, single) {}

  /// A run begins. `what` names it; `left_is` ("at most ") and `left_s` (seconds) tell the time
  /// left for all runs.
  void begin(std::string what, std::string left_is, double left_s);
  /// Shows the progress of the run. Called a few times a second.
  void running(const Progress& progress);
  /// The run has ended. If `stays`, prints `text` as a permanent line.
  void end(const std::string& text, bool stays);

  bool single() const { return line_.single(); }
  /// Prints a permanent line.
  void print(const std::string& text) { line_.print(text); }
  /// Removes the changing line after the last run.
  void finish() { line_.clear(); }

 private:
  LiveLine line_;
  std::string what_, left_is_;
  double left_s_ = 0;
};

}  // namespace penstock
