// SPDX-License-Identifier: Apache-2.0
#include "bench/record/saved_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "bench/config/comparable.h"
#include "bench/record/result_json.h"
#include "bench/record/saved_steps.h"
#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kExpected =
    "expected results.json of a sweep or isolation.json, their folder, or what `penstock run "
    "--json` prints";

/// The objects of the text: one, or one on each line.
std::vector<Json> objects_of(std::string_view text) {
  std::string reason;
  try {
    return {Json::parse(text)};
  } catch (const Json::exception& error) {
    reason = error.what();
  }
  std::vector<Json> objects;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    objects.push_back(Json::parse(line, nullptr, false));
    if (!objects.back().is_object()) throw DataError("it is not JSON: " + reason);
  }
  if (objects.empty()) throw DataError("it is empty");
  return objects;
}

bool same_but_for_the_seed(RunConfig a, const RunConfig& b) {
  a.seed = b.seed;
  return a == b;
}

SweepResult sweep_of_runs(const std::vector<Json>& runs) {
  std::vector<RunResult> results;
  Environment environment;
  for (const Json& json : runs) {
    results.push_back(result_from_json(json));
    const auto found = json.find("environment");
    if (found != json.end()) environment = environment_from_json(*found);
  }
  return sweep_of(std::move(results), std::move(environment));
}

}  // namespace

SweepResult sweep_of(std::vector<RunResult> results, Environment environment, std::string command) {
  SweepResult sweep;
  sweep.environment = std::move(environment);
  sweep.command = std::move(command);
  sweep.seed = results.front().config.seed;
  for (RunResult& result : results) {
    auto row = std::ranges::find_if(sweep.rows, [&](const Row& each) {
      return same_but_for_the_seed(each.config, result.config);
    });
    if (row == sweep.rows.end()) {
      row = sweep.rows.emplace(sweep.rows.end());
      row->config = result.config;
      row->is_ceiling = is_ceiling(result.config);
    }
    const auto round = static_cast<std::int32_t>(row->repetitions.size());
    row->repetitions.push_back({round, std::move(result)});
    sweep.repetitions = std::max(sweep.repetitions, round + 1);
  }
  if (sweep.command.empty()) {
    sweep.command = "penstock run";
    for (const std::string& flag : to_flags(sweep.rows.front().config)) {
      sweep.command += " " + flag;
    }
  }
  std::vector<RunConfig> configurations;
  for (const Row& row : sweep.rows) configurations.push_back(row.config);
  sweep.varied = varied_keys(configurations);
  summarise(sweep);
  return sweep;
}

SweepResult parse_saved_results(std::string_view text, std::string_view name) {
  try {
    if (is_step_records(text)) return parse_step_records(text);
    const std::vector<Json> objects = objects_of(text);
    if (objects.size() > 1) return sweep_of_runs(objects);
    const Json& json = objects.front();
    if (json.contains("runs")) return sweep_from_json(json);
    // isolation.json: the findings, and the sweep behind them.
    return json.contains("sweep") ? sweep_from_json(json["sweep"]) : sweep_of_runs(objects);
  } catch (const DataError& error) {
    throw DataError("cannot read '{}' as saved results: {}; {}", name, error.what(), kExpected);
  }
}

SweepResult read_saved_results(const std::filesystem::path& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  const std::filesystem::path file = is_folder ? path / "results.json" : path;
  const InputFile in(file);
  if (!in) {
    const std::filesystem::path steps = step_records_path(file);
    throw ConfigError(
        "cannot read '{}': {}; {}", file.native(),
        in.error() == ENOENT ? "there is no such file to read" : in.problem(),
        std::filesystem::is_regular_file(steps)
            ? fmt::format("its run did not end, and left its steps in '{}': read that",
                          steps.native())
            : kExpected);
  }
  return parse_saved_results(in.text(), file.native());
}

}  // namespace penstock
