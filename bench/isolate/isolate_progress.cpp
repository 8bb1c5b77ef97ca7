// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolate_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "bench/isolate/isolation_files.h"
#include "bench/isolate/verdict.h"
#include "dataflow/error.h"

namespace penstock {

IsolateProgress::~IsolateProgress() {
  if (line_open_) std::fputs("\r\x1b[K", stderr);
}

void IsolateProgress::show(const std::string& line, bool passing) {
  if (single_line_) {
    fmt::print(stderr, "\r\x1b[K{}{}", line, passing ? "" : "\n");
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  line_open_ = single_line_ && passing;
  std::fflush(stderr);
}

void IsolateProgress::phase_begins(std::string_view phase, double budget_s) {
  phase_ = phase;
  budget_s_ = budget_s;
}

void IsolateProgress::run_begins(const SweepMoment& moment) {
  if (!single_line_) return;
  show(fmt::format("{} {}: {} ... at most {:.0f} s left{}", phase_, moment.round + 1,
                   name_of_run(moment.row.config, moment.row.is_ceiling),
                   std::max(0.0, budget_s_ - moment.elapsed_s), outcome_),
       true);
}

void IsolateProgress::run_ended(const SweepMoment& moment, const RunResult& result) {
  const bool failed = result.status == Status::failed || result.status == Status::partial;
  const std::string rate = failed ? fmt::format("{}: {}", to_string(result.status), result.reason)
                                  : fmt::format("{:.1f} img/s", result.img_per_s);
  const std::string name = name_of_run(moment.row.config, moment.row.is_ceiling);
  outcome_ = fmt::format("; before: {}", rate).substr(0, 40);
  show(fmt::format("{} {}: {}: {}", phase_, moment.round + 1, name, rate), !failed);
}

void IsolateProgress::results_changed(const SweepResult& sweep) {
  try {
    write_runs(sweep, folder_.path());
    saved_ = true;
  } catch (const DataError& error) {
    if (!begun_) {
      throw ConfigError(fmt::format("{}; give --out a folder that can be written", error.what()));
    }
    if (saved_) show(fmt::format("penstock: {}; the measurement goes on", error.what()), false);
    saved_ = false;
  }
  begun_ = true;
}

}  // namespace penstock
