// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/step_records.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "bench/record/machine.h"
#include "bench/record/saved_steps.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"

namespace penstock {
namespace {

constexpr Nanoseconds kPeriod = std::chrono::seconds(1);

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a full disk must not end the run
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

StepRecords::StepRecords(std::filesystem::path path, const RunConfig& config, Clock& clock)
    : config_(config), started_(utc_now()) {
  if (path.empty()) return;
  try {
    file_ = open_growing_file(path);
  } catch (const DataError& error) {
    throw ConfigError(
        "--out, for steps as they are measured: {}; name a file in an existing, writable folder",
        error.what());
  }
  RunResult begun = partial_result(config_, started_);
  begun.reason = "it was ended from outside";
  write_all(file_.get(), step_records_begin(begun, read_environment()));
  ticker_.emplace(clock, kPeriod, [this] { flush(); });
}

StepRecords::~StepRecords() {
  ticker_.reset();
  flush();
}

void StepRecords::window_begins() {
  const std::lock_guard lock(mutex_);
  if (!step_ms_.empty()) unwritten_ += "{\"window\":\"again\"}\n";
  step_ms_.clear();
  losses_.clear();
}

void StepRecords::step(const StepReport& step) {
  const std::lock_guard lock(mutex_);
  step_ms_.push_back(1000 * step.seconds);
  losses_.push_back(step.loss);
  if (!file_) return;
  const std::string loss = std::isfinite(step.loss) ? fmt::format("{}", step.loss) : "null";
  unwritten_ +=
      fmt::format("{{\"step\":{},\"ms\":{},\"loss\":{}}}\n", step.index + 1, step_ms_.back(), loss);
}

void StepRecords::flush() {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text.swap(unwritten_);
  }
  if (!text.empty()) write_all(file_.get(), text);
}

RunResult StepRecords::so_far() const {
  RunResult result = partial_result(config_, started_);
  {
    const std::lock_guard lock(mutex_);
    result.step_ms = step_ms_;
    result.losses = losses_;
  }
  add_rates(result);
  return result;
}

}  // namespace penstock
