// SPDX-License-Identifier: Apache-2.0
#include "bench/run/step_records.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "bench/record/json_field.h"
#include "bench/record/machine.h"
#include "bench/record/result_json.h"
#include "bench/record/saved_results.h"
#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr Nanoseconds kPeriod = std::chrono::seconds(1);
constexpr std::string_view kBegin = "{\"penstock_steps\":";

/// Computes the rates of `result` from its steps.
void add_rates(RunResult& result) {
  result.window_s = std::accumulate(result.step_ms.begin(), result.step_ms.end(), 0.0) / 1000;
  const auto images =
      static_cast<double>(result.images_per_step) * static_cast<double>(result.step_ms.size());
  result.img_per_s = result.window_s > 0 ? images / result.window_s : 0;
  result.sustained_img_per_s = result.img_per_s;
}

RunResult partial_result(const RunConfig& config, std::string started) {
  RunResult result;
  result.config = config;
  result.status = Status::partial;
  result.exit_code = 5;
  result.started = std::move(started);
  result.images_per_step = std::int64_t{config.batch_size} * config.num_gpus;
  result.notes = {
      "the run did not complete: rates are those of this process only, from its step times"};
  return result;
}

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
    throw ConfigError(fmt::format(
        "--out, for steps as they are measured: {}; name a file in an existing, writable folder",
        error.what()));
  }
  RunResult begun = partial_result(config_, started_);
  begun.reason = "it was ended from outside";
  const Json first{{"penstock_steps", 1},
                   {"result", to_json(begun)},
                   {"environment", to_json(read_environment())}};
  write_all(file_.get(), first.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
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

std::filesystem::path step_records_path(const std::filesystem::path& out) {
  std::filesystem::path path = out;
  if (path.extension() == ".json") path.replace_extension();
  path += ".steps.jsonl";
  return path;
}

bool is_step_records(std::string_view text) { return text.starts_with(kBegin); }

SweepResult parse_step_records(std::string_view text) {
  RunResult result;
  Environment environment;
  std::size_t number = 0;
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos;
       text.remove_prefix(end + 1)) {
    const Json line = Json::parse(text.substr(0, end), nullptr, false);
    if (!line.is_object()) throw DataError(fmt::format("line {} is not JSON", number + 1));
    const JsonField field(line, fmt::format("line {}", number + 1));
    if (number++ == 0) {
      result = result_from_json(field.at("result").json());
      environment = environment_from_json(field.at("environment").json());
    } else if (field.has("window")) {
      result.step_ms.clear();
      result.losses.clear();
    } else {
      result.step_ms.push_back(field.at("ms").amount());
      const JsonField loss = field.at("loss");
      result.losses.push_back(loss.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                             : loss.number());
    }
  }
  if (number == 0) throw DataError("its first line is cut");
  add_rates(result);
  return sweep_of({std::move(result)}, std::move(environment));
}

}  // namespace penstock
