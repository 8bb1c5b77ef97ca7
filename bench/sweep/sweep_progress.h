// SPDX-License-Identifier: Apache-2.0
// Reports a running sweep on standard error, and saves its results after each run. On a terminal,
// one changing line shows the rate so far, the queue and the time left. Otherwise each run prints
// one line.
#pragma once

#include <cstdio>
#include <string>

#include "bench/run/progress.h"
#include "bench/run/result_saver.h"
#include "bench/run/run_line.h"
#include "bench/sweep/result_folder.h"
#include "bench/sweep/sweep_runner.h"

namespace penstock {

class SweepProgress final : public SweepListener {
 public:
  /// `single_line`: standard error is a terminal, and nothing else writes to it.
  SweepProgress(const ResultFolder& folder, bool single_line)
      : folder_(folder), line_(stderr, single_line) {}

  void rests(double busy_percent) override;
  void run_begins(const SweepMoment& moment) override;
  void run_ended(const SweepMoment& moment, const RunResult& result) override;
  void results_changed(const SweepResult& sweep) override;
  /// Shows the progress of the current run, a few times a second. Not while another member is
  /// called.
  void running(const Progress& progress) { line_.running(progress); }

  /// Removes the changing line after the last run.
  void finish() { line_.finish(); }

  /// True if all results so far are on disk.
  bool saved() const noexcept { return saver_.saved(); }

 private:
  const ResultFolder& folder_;
  RunLine line_;
  const SweepResult* sweep_ = nullptr;
  std::string where_;  // the current run
  ResultSaver saver_;
  bool rests_ = false;
};

}  // namespace penstock
