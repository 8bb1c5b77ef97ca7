// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep/sweep_progress.h"

#include <fmt/format.h>

#include <utility>

#include "bench/record/report_text.h"

namespace penstock {
namespace {

std::string outcome(const RunResult& result) {
  std::string text = fmt::format("{:.1f} img/s", result.img_per_s);
  if (result.status == Status::ok) return text;
  if (result.img_per_s == 0) text.clear();
  return fmt::format("{}{}{}: {}", text, text.empty() ? "" : ", ", to_string(result.status),
                     result.reason);
}

}  // namespace

void SweepProgress::rests(double busy_percent) {
  const std::string text = fmt::format(
      "waiting until the machine is at rest: other programs use {:.0f} % of its processors",
      busy_percent);
  if (!std::exchange(rests_, true) || line_.single()) line_.end(text, false);
}

void SweepProgress::run_begins(const SweepMoment& moment) {
  where_ = fmt::format("[{}/{}] round {}: {}", moment.run + 1, moment.runs, moment.round + 1,
                       label_of(*sweep_, moment.row));
  // Before the first run has ended, only the budget is known.
  line_.begin(where_, moment.run == 0 ? "at most " : "about ", moment.left_s);
}

void SweepProgress::run_ended(const SweepMoment& moment, const RunResult& result) {
  line_.end(
      fmt::format("{}: {}; about {} left", where_, outcome(result), duration_text(moment.left_s)),
      result.status != Status::ok);
}

void SweepProgress::results_changed(const SweepResult& sweep) {
  sweep_ = &sweep;
  saver_.save([&] { folder_.write(sweep); },
              [this](const std::string& text) { line_.print(text); });
}

}  // namespace penstock
