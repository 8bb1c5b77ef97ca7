// SPDX-License-Identifier: Apache-2.0
// What `penstock isolate` says on standard error while it measures, and its runs on disk after each
// one. On a terminal one line changes; elsewhere each run has a line.
#pragma once

#include <string>

#include "bench/isolate/isolator.h"
#include "bench/result_folder.h"

namespace penstock {

class IsolateProgress final : public IsolateListener {
 public:
  /// `single_line`: standard error is a terminal that nothing else writes to.
  IsolateProgress(const ResultFolder& folder, bool single_line)
      : folder_(folder), single_line_(single_line) {}
  ~IsolateProgress() override;

  void phase_begins(std::string_view phase, double budget_s) override;
  void run_begins(const SweepMoment& moment) override;
  void run_ended(const SweepMoment& moment, const RunResult& result) override;
  void results_changed(const SweepResult& sweep) override;

  /// Are all results so far on disk?
  bool saved() const noexcept { return saved_; }

 private:
  void show(const std::string& line, bool passing);

  const ResultFolder& folder_;
  const bool single_line_;
  std::string phase_, outcome_;
  double budget_s_ = 0;
  bool saved_ = true, begun_ = false, line_open_ = false;
};

}  // namespace penstock
