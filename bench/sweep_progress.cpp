// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/report_text.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

/// Between two lines about one run, where lines stay.
constexpr double kLineEvery_s = 5;

std::string outcome(const RunResult& result) {
  std::string text = fmt::format("{:.1f} img/s", result.img_per_s);
  if (result.status == Status::ok) return text;
  if (result.img_per_s == 0) text.clear();
  return fmt::format("{}{}{}: {}", text, text.empty() ? "" : ", ", to_string(result.status),
                     result.reason);
}

}  // namespace

void SweepProgress::run_begins(const SweepMoment& moment) {
  where_ = fmt::format("[{}/{}] round {}: {}", moment.run + 1, moment.runs, moment.round + 1,
                       label_of(*sweep_, moment.row));
  sweep_left_s_ = moment.left_s;
  next_line_s_ = kLineEvery_s;
  running({});
}

void SweepProgress::running(const Progress& progress) {
  if (!line_.single() && progress.elapsed_s < next_line_s_) return;
  next_line_s_ = progress.elapsed_s + kLineEvery_s;
  const std::string left =
      fmt::format("; {} left", duration_text(std::max(0.0, sweep_left_s_ - progress.elapsed_s)));
  Progress shown = progress;
  shown.left_s = 0;  // of one run: the whole matters more
  if (!line_.single()) {
    return line_.print(where_ + ": " + progress_text(shown, std::string::npos, false) + left);
  }
  const std::size_t width = line_.width(), around = where_.size() + 2 + left.size();
  if (around >= width) return line_.pass(where_.substr(0, width));
  line_.pass(where_ + ": " + progress_text(shown, width - around, line_.colour()) + left);
}

void SweepProgress::run_ended(const SweepMoment& moment, const RunResult& result) {
  const std::string text =
      fmt::format("{}: {}; {} left", where_, outcome(result), duration_text(moment.left_s));
  if (!line_.single() || result.status != Status::ok) return line_.print(text);
  line_.pass(text.substr(0, line_.width()));
}

void SweepProgress::results_changed(const SweepResult& sweep) {
  sweep_ = &sweep;
  try {
    folder_.write(sweep);
    saved_ = true;
  } catch (const DataError& error) {
    if (!begun_) {
      throw ConfigError(fmt::format("{}; give --out a folder that can be written", error.what()));
    }
    if (saved_) {
      line_.print(fmt::format(
          "penstock: {}; the results on disk are those before this run, and the sweep goes on",
          error.what()));
    }
    saved_ = false;
  }
  begun_ = true;
}

}  // namespace penstock
