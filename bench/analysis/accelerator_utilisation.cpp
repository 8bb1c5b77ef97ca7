// SPDX-License-Identifier: Apache-2.0
#include "bench/analysis/accelerator_utilisation.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "dataflow/error.h"

namespace penstock {
namespace {

double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

}  // namespace

double au_percent_rule(std::span<const double> step_ms, double computation_ms,
                       double first_input_ms) {
  return percent(static_cast<double>(step_ms.size()) * computation_ms,
                 sum(step_ms) - first_input_ms);
}

double au_percent_dlio(std::span<const double> step_ms, std::span<const double> compute_ms) {
  PENSTOCK_ASSERT(step_ms.size() == compute_ms.size());
  if (step_ms.empty()) return 0;
  return percent(sum(compute_ms.subspan(1)), sum(step_ms.subspan(1)));
}

double dlio_compute_ms(double step_ms, double idle_ms, double oversleep_ms) {
  return std::min(step_ms, step_ms - idle_ms + oversleep_ms);
}

void add_accelerator_utilisation(RunResult& result) {
  const auto computation = fact_of(result, "emulated_step_ms");
  if (!computation || result.step_ms.size() < 2) return;
  const double late_ms = fact_of(result, "oversleep_us_mean").value_or(0) / 1e3;
  std::vector<double> compute_ms(result.step_ms.size());
  for (std::size_t i = 0; i < compute_ms.size(); ++i) {
    const bool exchanged = i < result.exchange_exposed_ms.size();
    const double waited = exchanged ? result.exchange_exposed_ms[i] : 0;
    compute_ms[i] = dlio_compute_ms(result.step_ms[i], result.device_idle_ms[i] + waited, late_ms);
  }
  result.facts["au_percent_rule"] =
      au_percent_rule(result.step_ms, *computation, result.device_idle_ms.front());
  result.facts["au_percent_dlio"] = au_percent_dlio(result.step_ms, compute_ms);
  result.facts["au_pass_line_percent"] = 90;  // from here on, MLPerf Storage's ResNet-50 passes
}

}  // namespace penstock
