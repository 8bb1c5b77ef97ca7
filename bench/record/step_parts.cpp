// SPDX-License-Identifier: Apache-2.0
#include "bench/record/step_parts.h"

#include <algorithm>
#include <utility>

#include "bench/record/report_text.h"
#include "bench/statistics/series.h"

namespace penstock {
namespace {

struct Part {
  const char* name;
  std::string_view words;
  std::vector<double> RunResult::*ms;  ///< null: the rest of the step
};
constexpr Part kParts[] = {{"step", "step", &RunResult::step_ms},
                           {"starved", "input wait (starved)", &RunResult::starved_ms},
                           {"copy_exposed", "copy", &RunResult::copy_exposed_ms},
                           {"compute", "compute", nullptr},
                           {"exchange_exposed", "exchange", &RunResult::exchange_exposed_ms},
                           {"late", "host overhead", &RunResult::late_ms}};

/// What is left of each step without its idle time and its exchange.
std::vector<double> rest_of(const RunResult& run) {
  std::vector<double> rest = run.step_ms;
  for (const Part& part : kParts) {
    if (part.ms == nullptr || part.ms == &RunResult::step_ms) continue;
    const std::vector<double>& taken = run.*part.ms;
    for (std::size_t i = 0; i < std::min(rest.size(), taken.size()); ++i) rest[i] -= taken[i];
  }
  for (double& ms : rest) ms = std::max(ms, 0.0);
  return rest;
}

std::string_view words_of(std::string_view name) {
  const auto* const part =
      std::ranges::find_if(kParts, [name](const Part& each) { return each.name == name; });
  return part == std::end(kParts) ? name : part->words;
}

/// Adds a line for each part that takes time; `label` stands before it, if there is one.
void add_rows(document::Table& table, std::span<const PartTimes> parts,
              const std::vector<std::string>& label) {
  constexpr double kShown = 0.005;
  for (const PartTimes& part : parts) {
    if (part.max < kShown) continue;
    std::vector<std::string> cells = label;
    cells.emplace_back(words_of(part.name));
    for (const double ms : {part.p50, part.p95, part.p99, part.max}) {
      cells.push_back(format_fixed(ms, 2));
    }
    table.rows.push_back(std::move(cells));
  }
}

document::Table empty_table() {
  return {{{"ms of a step"}, {"p50", true}, {"p95", true}, {"p99", true}, {"max", true}}, {}};
}

}  // namespace

std::vector<const char*> part_names() {
  std::vector<const char*> names;
  for (const Part& part : kParts) names.push_back(part.name);
  return names;
}

PartTimes percentiles_of(std::string name, std::span<const double> ms) {
  const auto at = [&](double share) { return statistics::quantile(ms, share); };
  return {std::move(name), at(0.5), at(0.9), at(0.95), at(0.99), at(1)};
}

std::vector<PartTimes> part_times(std::span<const RunResult> runs) {
  std::vector<PartTimes> times;
  for (const Part& part : kParts) {
    std::vector<double> ms;
    for (const RunResult& run : runs) {
      const std::vector<double> more = part.ms == nullptr ? rest_of(run) : run.*part.ms;
      ms.insert(ms.end(), more.begin(), more.end());
    }
    if (ms.empty()) continue;
    times.push_back(percentiles_of(part.name, ms));
  }
  return times;
}

document::Table parts_table(std::span<const PartTimes> parts) {
  document::Table table = empty_table();
  add_rows(table, parts, {});
  return table;
}

document::Table parts_table(const SweepResult& sweep) {
  document::Table table = empty_table();
  const bool labelled = sweep.rows.size() > 1;
  if (labelled) table.columns.insert(table.columns.begin(), document::Column{"row"});
  for (const Row& row : sweep.rows) {
    std::vector<RunResult> runs;
    for (const Repetition& repetition : row.repetitions) {
      const Status status = repetition.result.status;
      if (status == Status::ok || status == Status::draining) runs.push_back(repetition.result);
    }
    std::vector<std::string> label;
    if (labelled) label.push_back(label_of(sweep, row));
    add_rows(table, part_times(runs), label);
  }
  return table;
}

std::string_view parts_terms() {
  return "Input wait: no batch was ready on the host. Copy: a ready batch was being copied. Host "
         "overhead: the host enqueued the step late. Exchange: after backward, until the gradients "
         "of all ranks were there. Compute: the rest of the step. p95: 95 % of the steps take at "
         "most this.";
}

}  // namespace penstock
