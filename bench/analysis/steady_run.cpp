// SPDX-License-Identifier: Apache-2.0
#include "bench/analysis/steady_run.h"

#include <algorithm>
#include <cmath>

#include "bench/record/epoch_edges.h"
#include "bench/statistics/series.h"

namespace penstock::analysis {
namespace {

/// The floor keeps this share of a window, whatever was ready before it.
constexpr std::size_t kKeptAtLeast = 2;  // a half

statistics::WarmUp warm_up_of(const RunResult& result) {
  const double devices = std::max(1, result.config.num_gpus);
  const auto reserve = static_cast<std::size_t>(std::ceil(reserve_before(result) / devices));
  const std::vector<double> steady = without_edges(result, result.step_ms);
  const std::size_t floor = std::min(reserve + 1, steady.size() / kKeptAtLeast);
  return statistics::find_warm_up(steady, floor);
}

/// The mean over an epoch of a series with one value per step: of the kept steps, and of the edges
/// of epochs, if the loader's length is known.
double kept_mean(const RunResult& result, const std::vector<double>& series, std::size_t dropped) {
  if (series.size() != result.step_ms.size()) return 0;
  const std::vector<double> steady = without_edges(result, series);
  return with_edges(result, series, statistics::mean(std::span(steady).subspan(dropped)));
}

}  // namespace

bool is_usable(const RunResult& result) {
  const auto is_time = [](double ms) { return std::isfinite(ms) && ms >= 0; };
  return (result.status == Status::ok || result.status == Status::draining) &&
         result.img_per_s > 0 && result.images_per_step > 0 &&
         result.step_ms.size() >= 2 * kMinKeptSteps &&
         std::all_of(result.step_ms.begin(), result.step_ms.end(), is_time);
}

SteadyRun steady_state(const RunResult& result) {
  const statistics::WarmUp warm_up = warm_up_of(result);
  SteadyRun run;
  const std::size_t steady = without_edges(result, result.step_ms).size();
  run.dropped = std::min(warm_up.steps, steady);
  run.steps = steady - run.dropped;
  run.drifting = warm_up.drifting;
  run.drift_percent = warm_up.drift_percent;
  run.step_ms = kept_mean(result, result.step_ms, run.dropped);
  run.busy_ms = run.step_ms - kept_mean(result, result.device_idle_ms, run.dropped);
  run.starved_ms = kept_mean(result, result.starved_ms, run.dropped);
  run.copy_exposed_ms = kept_mean(result, result.copy_exposed_ms, run.dropped);
  run.late_ms = kept_mean(result, result.late_ms, run.dropped);
  run.split_known = result.starved_ms.size() == result.step_ms.size() &&
                    result.copy_exposed_ms.size() == result.step_ms.size() &&
                    result.late_ms.size() == result.step_ms.size();
  run.kept_up_ms = run.step_ms;
  const double rate = kept_up_img_per_s(result);
  if (result.epoch_begins.empty() && rate > 0 && rate < result.img_per_s) {
    run.kept_up_ms =
        std::max(run.step_ms, 1e3 * static_cast<double>(result.images_per_step) / rate);
  }
  return run;
}

std::span<const double> kept_steps(const RunResult& result) {
  const std::size_t dropped = std::min(warm_up_of(result).steps, result.step_ms.size());
  return std::span(result.step_ms).subspan(dropped);
}

std::vector<const RunResult*> usable_runs(const Row& row) {
  std::vector<const RunResult*> runs;
  for (const Repetition& repetition : row.repetitions) {
    if (is_usable(repetition.result)) runs.push_back(&repetition.result);
  }
  return runs;
}

std::vector<SteadyRun> steady_runs(const Row& row) {
  std::vector<SteadyRun> runs;
  for (const RunResult* run : usable_runs(row)) runs.push_back(steady_state(*run));
  return runs;
}

}  // namespace penstock::analysis
