// SPDX-License-Identifier: Apache-2.0
#include "bench/record/epoch_edges.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/config/training_loop.h"
#include "bench/statistics/series.h"

namespace penstock {
namespace {

double steps_per_epoch(const RunResult& result) {
  const double stated = fact_of(result, "loader_steps_per_epoch").value_or(0);
  const std::vector<std::int64_t>& begins = result.epoch_begins;
  if (stated > 0 || begins.size() < 2) return stated;
  return static_cast<double>(begins.back() - begins.front()) /
         static_cast<double>(begins.size() - 1);
}

bool is_edge(const RunResult& result, std::size_t step) {
  for (const std::int64_t begin : result.epoch_begins) {
    if (static_cast<std::size_t>(begin) == step) return true;
  }
  return false;
}

std::vector<double> at_edges(const RunResult& result, const std::vector<double>& series) {
  std::vector<double> values;
  for (const std::int64_t begin : result.epoch_begins) {
    const auto step = static_cast<std::size_t>(begin);
    if (step < series.size()) values.push_back(series[step]);
  }
  return values;
}

}  // namespace

EpochEdges epoch_edges(std::span<const RunResult* const> runs) {
  EpochEdges edges;
  std::vector<double> steady, at;
  for (const RunResult* run : runs) {
    edges.steps_per_epoch = std::max(edges.steps_per_epoch, steps_per_epoch(*run));
    edges.first_batch_s =
        std::max(edges.first_batch_s, fact_of(*run, "loader_first_batch_s").value_or(0));
    const std::vector<double> others = without_edges(*run, run->step_ms);
    const std::vector<double> edge = at_edges(*run, run->step_ms);
    steady.insert(steady.end(), others.begin(), others.end());
    at.insert(at.end(), edge.begin(), edge.end());
  }
  edges.seen = at.size();
  edges.steady_ms = statistics::mean(steady);
  if (edges.seen > 0) edges.longer_ms = statistics::mean(at) - edges.steady_ms;
  return edges;
}

std::vector<double> without_edges(const RunResult& result, const std::vector<double>& series) {
  if (!(steps_per_epoch(result) > 0)) return series;
  std::vector<double> values;
  for (std::size_t step = 0; step < series.size(); ++step) {
    if (!is_edge(result, step)) values.push_back(series[step]);
  }
  return values;
}

double with_edges(const RunResult& result, const std::vector<double>& series, double steady) {
  const double steps = steps_per_epoch(result);
  const std::vector<double> edges = at_edges(result, series);
  return edges.empty() || !(steps > 0) ? steady
                                       : steady + (statistics::mean(edges) - steady) / steps;
}

std::string describe_edges(const RunResult& result) {
  const RunResult* const run = &result;
  const EpochEdges edges = epoch_edges(std::span(&run, 1));
  if (!(edges.steps_per_epoch > 0) || edges.first_batch_s == 0) return {};
  const std::string epoch =
      fmt::format("an epoch of the loader has {:.0f} steps", edges.steps_per_epoch);
  if (edges.misses_edges()) {
    return fmt::format(
        "{}, and the window reached no end of one: the rate leaves out what the beginning of an "
        "epoch costs; the loader's first batch came after {:.1f} s",
        epoch, edges.first_batch_s);
  }
  const double images_per_step =
      result.img_per_s * result.window_s / static_cast<double>(result.step_ms.size());
  return fmt::format(
      "{}; the first one of an epoch takes {:.0f} ms longer than the others: {:.0f} {} over whole "
      "epochs, {:.0f} without their edges",
      epoch, edges.longer_ms, 1e3 * images_per_step / edges.step_ms(), rate_unit(result.config),
      1e3 * images_per_step / edges.steady_ms);
}

}  // namespace penstock
