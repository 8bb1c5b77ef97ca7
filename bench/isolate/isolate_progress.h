// SPDX-License-Identifier: Apache-2.0
// Prints the progress of `penstock isolate` on standard error, and saves its runs to disk after
// each run.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "bench/document/terminal.h"
#include "bench/isolate/isolator.h"
#include "bench/run/observe/progress_line.h"
#include "bench/sweep/result_folder.h"

namespace penstock::isolate {

class IsolateProgress final : public IsolateListener {
 public:
  /// `verbose`: runs write to standard error too; a line for each of them is printed. If not, and
  /// standard error is no terminal, one for each round and failed run.
  IsolateProgress(const ResultFolder& folder, bool verbose)
      : folder_(folder),
        line_(stderr, document::is_terminal(STDERR_FILENO) && !verbose),
        shows_runs_(line_.single() || verbose) {}

  void phase_begins(std::string_view phase, double budget_s) override;
  void budget_is_short(const std::string& sentence) override { line_.print(sentence); }
  void run_begins(const SweepMoment& moment) override;
  void run_ended(const SweepMoment& moment, const RunResult& result) override;
  void results_changed(const SweepResult& sweep) override;
  /// Shows the run under way; called a few times a second, never during another call.
  void running(const Progress& progress) { line_.running(progress); }

  /// Have all results so far been saved?
  bool saved() const noexcept { return saver_.saved(); }

 private:
  const ResultFolder& folder_;
  RunLine line_;
  const bool shows_runs_;
  std::string phase_, where_;
  double budget_s_ = 0;
  std::int32_t round_ = -1;  // of this phase, that was printed last
  ResultSaver saver_;
};

}  // namespace penstock::isolate
