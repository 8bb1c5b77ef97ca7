// SPDX-License-Identifier: Apache-2.0
// What a sweep says on standard error while it runs, and its results on disk after each run. On a
// terminal one line changes, with the rate so far, the queue, and what is left; elsewhere each run
// has one line.
#pragma once

#include <cstdio>
#include <string>

#include "bench/progress.h"
#include "bench/result_folder.h"
#include "bench/run_line.h"
#include "bench/sweep_runner.h"

namespace penstock {

class SweepProgress final : public SweepListener {
 public:
  /// `single_line`: standard error is a terminal that nothing else writes to.
  SweepProgress(const ResultFolder& folder, bool single_line)
      : folder_(folder), line_(stderr, single_line) {}

  void rests(double busy_percent) override;
  void run_begins(const SweepMoment& moment) override;
  void run_ended(const SweepMoment& moment, const RunResult& result) override;
  void results_changed(const SweepResult& sweep) override;
  /// The run under way, a few times a second; not while another member is called.
  void running(const Progress& progress) { line_.running(progress); }

  /// Nothing more will come: takes the passing line away.
  void finish() { line_.finish(); }

  /// Are all results so far on disk?
  bool saved() const noexcept { return saved_; }

 private:
  const ResultFolder& folder_;
  RunLine line_;
  const SweepResult* sweep_ = nullptr;
  std::string where_;  // the run under way
  bool begun_ = false, saved_ = true, rests_ = false;
};

}  // namespace penstock
