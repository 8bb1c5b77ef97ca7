// SPDX-License-Identifier: Apache-2.0
#include "bench/report/foreign_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/record/report_text.h"
#include "dataflow/entry.h"
#include "trainer/backend.h"

namespace penstock::report {

void print_runs(const SweepResult& sweep, bool always, std::ostream& out,
                void (*print)(const RunResult&, std::ostream&)) {
  const bool several = sweep.rows.size() > 1 || sweep.repetitions > 1;
  for (const Row& row : sweep.rows) {
    bool has_steps = false;
    for (const Repetition& repetition : row.repetitions) {
      const RunResult& result = repetition.result;
      if (result.step_ms.empty()) continue;
      has_steps = true;
      if (several || always) {
        out << fmt::format("# {} on {} x {}, run {} of {}: {}\n", label_of(sweep, row),
                           all_devices(result.config), result.config.device, repetition.round + 1,
                           sweep.repetitions, to_string(result.status));
      }
      print(result, out);
    }
    if (!has_steps) {
      out << fmt::format("# {}: {}: {}\n", label_of(sweep, row), to_string(row.status), row.reason);
    }
  }
}

std::vector<double> group_rates(const RunResult& result, std::size_t steps) {
  std::vector<double> rates;
  const std::vector<double>& step_ms = result.step_ms;
  const std::size_t group = std::min(steps, step_ms.size());
  for (std::size_t first = 0; group > 0 && first + group <= step_ms.size(); first += group) {
    const auto begin = step_ms.begin() + static_cast<std::ptrdiff_t>(first);
    const double ms = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(group), 0.0);
    const auto images = static_cast<double>(group) * static_cast<double>(result.images_per_step);
    if (ms > 0) rates.push_back(1e3 * images / ms);
  }
  return rates;
}

std::string_view plain_name(std::string_view component) {
  return component.substr(0, component.find(':'));
}

std::string_view device_word(const RunConfig& config) {
  const BackendEntry* const backend = match_entry(backend_table(), plain_name(config.device));
  // The CPU backend alone may be absent from a program.
  return backend == nullptr || backend->computes_on_host ? "CPU" : "GPU";
}

IterationSummary summarise_iterations(const RunResult& result) {
  constexpr std::size_t kStepsPerIteration = 10;
  IterationSummary summary{.rates = group_rates(result, kStepsPerIteration)};
  const auto count = static_cast<double>(std::max<std::size_t>(1, summary.rates.size()));
  // A step has the images of all processes, or of one if the results of the others are missing.
  const std::int64_t batch = std::max(1, result.config.batch_size);
  const std::int64_t devices = std::max<std::int64_t>(1, result.images_per_step / batch);
  for (double& rate : summary.rates) {
    rate /= static_cast<double>(devices);
    summary.mean += rate / count;
  }
  double variance = 0;
  for (const double rate : summary.rates)
    variance += (rate - summary.mean) * (rate - summary.mean) / count;
  summary.reach = 1.96 * std::sqrt(variance);
  return summary;
}

}  // namespace penstock::report
