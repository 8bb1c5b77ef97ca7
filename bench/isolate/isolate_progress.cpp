// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/isolate_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/config/training_loop.h"
#include "bench/isolate/isolation_report.h"
#include "bench/isolate/verdict.h"

namespace penstock::isolate {

void IsolateProgress::phase_begins(std::string_view phase, double budget_s) {
  phase_ = phase;
  budget_s_ = budget_s;
  round_ = -1;
}

void IsolateProgress::run_begins(const SweepMoment& moment) {
  where_ = fmt::format("{} {}: {}", phase_, moment.round + 1,
                       name_of_run(moment.row.config, moment.row.is_ceiling));
  if (!shows_runs_ && moment.round != round_) {
    line_.print(fmt::format("{} {}: at most {:.0f} s left", phase_, moment.round + 1,
                            std::max(0.0, budget_s_ - moment.elapsed_s)));
  }
  round_ = moment.round;
  line_.begin(where_, "at most ", budget_s_ - moment.elapsed_s);
}

void IsolateProgress::run_ended(const SweepMoment&, const RunResult& result) {
  const bool failed = result.status == Status::failed || result.status == Status::partial;
  const std::string rate =
      failed ? fmt::format("{}: {}", to_string(result.status), result.reason)
             : fmt::format("{:.1f} {}", result.img_per_s, rate_unit(result.config));
  if (failed || shows_runs_) line_.end(fmt::format("{}: {}", where_, rate), failed);
}

void IsolateProgress::results_changed(const SweepResult& sweep) {
  saver_.save([&] { write_runs(sweep, folder_.path()); },
              [this](const std::string& text) { line_.print(text); });
}

}  // namespace penstock::isolate
