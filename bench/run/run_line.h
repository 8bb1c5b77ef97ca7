// SPDX-License-Identifier: Apache-2.0
// Runs one after another, each in a process of its own, on standard error: the one under way on a
// line that changes, with its rate so far, the queue behind the feeder, and what is left of all;
// if that is no terminal, one line for each run, when it has ended.
//
// Thread-safety: one thread at a time; `running` may come from another one than the rest.
#pragma once

#include <cstdio>
#include <string>

#include "bench/live_line.h"
#include "bench/progress.h"

namespace penstock {

class RunLine {
 public:
  /// `single`: `out` is a terminal that nothing else writes to.
  RunLine(std::FILE* out, bool single) : line_(out, single) {}

  /// A run begins: what it is, and how long all of them take still, in words before the number
  /// ("at most "), and seconds.
  void begin(std::string what, std::string left_is, double left_s);
  /// How far it is, a few times a second.
  void running(const Progress& progress);
  /// It has ended. Where `stays`, for good.
  void end(const std::string& text, bool stays);

  bool single() const { return line_.single(); }
  /// A line that stays.
  void print(const std::string& text) { line_.print(text); }
  /// Nothing more will come: takes the passing line away.
  void finish() { line_.clear(); }

 private:
  LiveLine line_;
  std::string what_, left_is_;
  double left_s_ = 0;
};

}  // namespace penstock
