// SPDX-License-Identifier: Apache-2.0
#include "bench/record/saved_steps.h"

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "bench/record/json_field.h"
#include "bench/record/result_json.h"
#include "bench/record/saved_results.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBegin = "{\"penstock_steps\":";

}  // namespace

std::filesystem::path step_records_path(const std::filesystem::path& out) {
  std::filesystem::path path = out;
  if (path.extension() == ".json") path.replace_extension();
  path += ".steps.jsonl";
  return path;
}

bool is_step_records(std::string_view text) { return text.starts_with(kBegin); }

std::string step_records_begin(const RunResult& begun, const Environment& environment) {
  const Json first{
      {"penstock_steps", 1}, {"result", to_json(begun)}, {"environment", to_json(environment)}};
  return first.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
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

void add_rates(RunResult& result) {
  result.window_s = std::accumulate(result.step_ms.begin(), result.step_ms.end(), 0.0) / 1000;
  const auto images =
      static_cast<double>(result.images_per_step) * static_cast<double>(result.step_ms.size());
  result.img_per_s = result.window_s > 0 ? images / result.window_s : 0;
  result.sustained_img_per_s = result.img_per_s;
}

SweepResult parse_step_records(std::string_view text) {
  RunResult result;
  Environment environment;
  std::size_t number = 0;
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos;
       text.remove_prefix(end + 1)) {
    const Json line = Json::parse(text.substr(0, end), nullptr, false);
    if (!line.is_object()) throw DataError("line {} is not JSON", number + 1);
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
