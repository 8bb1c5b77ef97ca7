// SPDX-License-Identifier: Apache-2.0
// What `penstock isolate` says on standard error while it measures, and its runs on disk after each
// one.
#pragma once

#include <cstdio>
#include <string>

#include "bench/isolate/isolator.h"
#include "bench/result_folder.h"
#include "bench/run_line.h"

namespace penstock {

class IsolateProgress final : public IsolateListener {
 public:
  /// `single_line`: standard error is a terminal that nothing else writes to. `lines`: elsewhere
  /// each run has a line; else only runs that fail have one.
  IsolateProgress(const ResultFolder& folder, bool single_line, bool lines)
      : folder_(folder), line_(stderr, single_line), shows_runs_(single_line || lines) {}

  void phase_begins(std::string_view phase, double budget_s) override;
  void run_begins(const SweepMoment& moment) override;
  void run_ended(const SweepMoment& moment, const RunResult& result) override;
  void results_changed(const SweepResult& sweep) override;
  /// The run under way, a few times a second; not while another member is called.
  void running(const Progress& progress) { line_.running(progress); }

  /// Are all results so far on disk?
  bool saved() const noexcept { return saved_; }

 private:
  const ResultFolder& folder_;
  RunLine line_;
  const bool shows_runs_;
  std::string phase_, where_;
  double budget_s_ = 0;
  bool saved_ = true, begun_ = false;
};

}  // namespace penstock
