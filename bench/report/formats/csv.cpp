// SPDX-License-Identifier: Apache-2.0
// results.csv: one line per row. Columns have the names of results.json, nested names joined by
// '_'; keys of the configuration keep their plain names. Lists of repetitions and steps become
// medians. Nothing is rounded; unknown values are empty. Quoting follows RFC 4180, lines end in LF.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/record/result_json.h"
#include "bench/record/statistics.h"
#include "bench/record/step_parts.h"
#include "bench/report/report.h"
#include "dataflow/entry.h"

namespace penstock::report {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const Json& json) {
  if (json.is_null()) return "";
  if (json.is_string()) return json.get<std::string>();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void flatten(const std::string& prefix, const Json& json, Cells& cells) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      flatten(prefix.empty() ? key : fmt::format("{}_{}", prefix, key), value, cells);
    }
  } else if (json.is_array()) {
    std::string list;
    for (const Json& element : json) list += (list.empty() ? "" : "; ") + text_of(element);
    cells.emplace_back(prefix, list);
  } else {
    cells.emplace_back(prefix, text_of(json));
  }
}

/// The median of a figure over repetitions; null without repetitions that have steps.
template <typename Figure>
Json median_over(const Row& row, Figure figure) {
  std::vector<double> values;
  for (const Repetition& repetition : row.repetitions) {
    if (!repetition.result.step_ms.empty()) values.push_back(figure(repetition.result));
  }
  return values.empty() ? Json(nullptr) : Json(median(values));
}

/// The median of a fact over repetitions; null if no repetition has it.
Json median_of_fact(const Row& row, const char* name) {
  std::vector<double> values;
  for (const Repetition& repetition : row.repetitions) {
    if (const auto fact = fact_of(repetition.result, name)) values.push_back(*fact);
  }
  return values.empty() ? Json(nullptr) : Json(median(values));
}

/// The percentiles of each part of a step: medians over repetitions.
void add_parts(const Row& row, Json& medians) {
  const std::pair<const char*, double PartTimes::*> figures[] = {{"p50", &PartTimes::p50},
                                                                 {"p90", &PartTimes::p90},
                                                                 {"p95", &PartTimes::p95},
                                                                 {"p99", &PartTimes::p99},
                                                                 {"max", &PartTimes::max}};
  std::vector<PartTimes> all;
  for (const Repetition& repetition : row.repetitions) {
    for (PartTimes& part : part_times(std::span(&repetition.result, 1))) {
      all.push_back(std::move(part));
    }
  }
  for (const char* const name : part_names()) {
    for (const auto& [suffix, figure] : figures) {
      std::vector<double> values;
      for (const PartTimes& part : all) {
        if (part.name == name) values.push_back(part.*figure);
      }
      medians[fmt::format("{}_ms_{}", name, suffix)] =
          values.empty() ? Json(nullptr) : Json(median(values));
    }
  }
}

/// Most memory in use: medians over repetitions, of the fullest device.
void add_memory(const Row& row, Json& medians) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"process", "process"},
                                                            {"machine", "machine"},
                                                            {"page cache", "page_cache"},
                                                            {"device", "device"}};
  for (const auto& [name, column] : kNames) {
    std::vector<double> values;
    for (const Repetition& repetition : row.repetitions) {
      std::optional<double> most;
      for (const MemoryUse& use : repetition.result.memory) {
        if (use.name.starts_with(name)) most = std::max(most.value_or(0), use.peak_mib);
      }
      if (most) values.push_back(*most);
    }
    medians[fmt::format("memory_{}_mib_max", column)] =
        values.empty() ? Json(nullptr) : Json(median(values));
  }
}

Cells cells_of(const SweepResult& sweep, const Row& row) {
  Json json = to_json(sweep, row);
  Cells cells;
  flatten("", json["config"], cells);
  json.erase("config");
  flatten("", json, cells);
  Json medians{
      {"repetitions", row.repetitions.size()},
      {"reserve_start", median_over(row, [](const RunResult& r) { return r.reserve_start; })},
      {"reserve_end", median_over(row, [](const RunResult& r) { return r.reserve_end; })},
      {"window_s", median_over(row, [](const RunResult& r) { return r.window_s; })},
      {"process_cpu_s", median_over(row, [](const RunResult& r) { return r.process_cpu_s; })},
      {"input_wait_ms_p50",
       median_over(row, [](const RunResult& r) { return median(r.input_wait_ms); })},
      {"device_idle_ms_p50",
       median_over(row, [](const RunResult& r) { return median(r.device_idle_ms); })},
      {"device_idle_percent",
       median_over(row, [](const RunResult& r) { return r.device_idle_percent; })},
      {"au_percent_rule", median_of_fact(row, "au_percent_rule")},
      {"au_percent_dlio", median_of_fact(row, "au_percent_dlio")},
      {"au_pass_line_percent", median_of_fact(row, "au_pass_line_percent")}};
  add_parts(row, medians);
  add_memory(row, medians);
  flatten("", medians, cells);
  flatten("environment", to_json(sweep.environment), cells);
  return cells;
}

std::string cell_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  result += '"';
  return result;
}

void write(const SweepResult& sweep, const document::TerminalStyle&, std::ostream& out) {
  bool first_row = true;
  for (const Row& row : sweep.rows) {
    std::vector<std::string> names, values;
    for (const auto& [name, value] : cells_of(sweep, row)) {
      names.push_back(cell_text(name));
      values.push_back(cell_text(value));
    }
    if (std::exchange(first_row, false)) out << join(names, ",") << "\n";
    out << join(values, ",") << "\n";
  }
}

}  // namespace

extern constinit const ReportEntry csv_report{
    .name = "csv",
    .summary = "one line per row, with its configuration and environment",
    .file = "results.csv",
    .write = write,
};

}  // namespace penstock::report
