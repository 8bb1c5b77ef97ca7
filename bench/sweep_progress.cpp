// SPDX-License-Identifier: Apache-2.0
#include "bench/sweep_progress.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "bench/report_text.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  if (whole < 100) return fmt::format("{} s", whole);
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string outcome(const RunResult& result) {
  std::string text = fmt::format("{:.1f} img/s", result.img_per_s);
  if (result.status == Status::ok) return text;
  if (result.img_per_s == 0) text.clear();
  return fmt::format("{}{}{}: {}", text, text.empty() ? "" : ", ", to_string(result.status),
                     result.reason);
}

}  // namespace

void SweepProgress::show(const std::string& line, bool passing) {
  if (!single_line_) {
    fmt::print(stderr, "{}\n", line);
  } else {
    fmt::print(stderr, "\r\x1b[K{}{}", line, passing ? "" : "\n");
  }
  line_open_ = single_line_ && passing;
  std::fflush(stderr);
}

void SweepProgress::run_begins(const SweepMoment& moment) {
  if (!single_line_) return;
  show(fmt::format("[{}/{}] round {}: {} ... {} left{}", moment.run + 1, moment.runs,
                   moment.round + 1, label_of(*sweep_, moment.row), duration(moment.left_s),
                   outcome_),
       true);
}

void SweepProgress::run_ended(const SweepMoment& moment, const RunResult& result) {
  const std::string text = fmt::format("{}: {}", label_of(*sweep_, moment.row), outcome(result));
  outcome_ = "; before: " + text.substr(0, 60);
  const bool passing = result.status == Status::ok;
  show(fmt::format("[{}/{}] round {}: {}; {} left", moment.run + 1, moment.runs, moment.round + 1,
                   text, duration(moment.left_s)),
       passing);
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
      show(fmt::format(
               "penstock: {}; the results on disk are those before this run, and the sweep goes "
               "on",
               error.what()),
           false);
    }
    saved_ = false;
  }
  begun_ = true;
}

}  // namespace penstock
