// SPDX-License-Identifier: Apache-2.0
// What a sweep says on standard error while it runs, and its results on disk after each run. On a
// terminal one line changes; elsewhere each run has a line.
#pragma once

#include <string>

#include "bench/result_folder.h"
#include "bench/sweep_runner.h"

namespace penstock {

class SweepProgress final : public SweepListener {
 public:
  /// `single_line`: standard error is a terminal that nothing else writes to.
  SweepProgress(const ResultFolder& folder, bool single_line)
      : folder_(folder), single_line_(single_line) {}

  void run_begins(const SweepMoment& moment) override;
  void run_ended(const SweepMoment& moment, const RunResult& result) override;
  void results_changed(const SweepResult& sweep) override;

  /// Are all results so far on disk?
  bool saved() const noexcept { return saved_; }

 private:
  void show(const std::string& line, bool passing);

  const ResultFolder& folder_;
  const bool single_line_;
  const SweepResult* sweep_ = nullptr;
  std::string outcome_;  ///< of the run before
  bool begun_ = false, saved_ = true, line_open_ = false;
};

}  // namespace penstock
