// SPDX-License-Identifier: Apache-2.0
#include "bench/analysis/rank_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/analysis/accelerator_utilisation.h"
#include "bench/record/rank_skew.h"
#include "bench/record/step_parts.h"
#include "bench/statistics/series.h"

namespace penstock {
namespace {

double milliseconds(Nanoseconds time) { return 1e3 * to_seconds(time); }

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

constexpr const char* kStepsOutside = "steps_outside_window";

struct Interval {
  Time begin = Time::min(), end = Time::max();
};

/// From the beginning of the last rank to the end of the first one.
Interval common_interval(std::span<const Leg> ranks) {
  Interval common;
  for (const Leg& rank : ranks) {
    const Nanoseconds last = rank.steps.empty() ? Nanoseconds{} : rank.steps.back().completion;
    common.begin = std::max(common.begin, rank.begin);
    common.end = std::min(common.end, rank.begin + last);
  }
  return common;
}

double seconds_inside(Time from, Time to, const Interval& interval) {
  return std::max(0.0, to_seconds(std::min(to, interval.end) - std::max(from, interval.begin)));
}

double images_inside(const Leg& rank, const Interval& interval) {
  double images = 0;
  Time before = rank.begin;
  for (const StepTimes& step : rank.steps) {
    const Time done = rank.begin + step.completion;
    if (done > before) {
      images +=
          step.result.images * seconds_inside(before, done, interval) / to_seconds(done - before);
    }
    before = done;
  }
  return images;
}

std::ptrdiff_t steps_after(const Leg& rank, Time end) {
  const auto is_after = [&](const StepTimes& step) { return rank.begin + step.start >= end; };
  return std::ranges::count_if(rank.steps, is_after);
}

/// The series of a leg that has `steps` steps on every rank.
class Series {
 public:
  /// `share` is what a step of these ranks counts in the run's step.
  Series(RunResult& result, std::size_t steps, bool exchanges, double share)
      : result_(result), share_(share), first_(result.step_ms.size()), steps_(steps) {
    for (std::vector<double>* const each :
         {&result.step_ms, &result.input_wait_ms, &result.device_idle_ms, &result.starved_ms,
          &result.copy_exposed_ms, &result.late_ms}) {
      each->resize(first_ + steps);
    }
    if (exchanges) result.exchange_exposed_ms.resize(first_ + steps);
  }

  /// Adds ranks that wait for each other. Returns how long their devices were idle in `window`.
  double add(std::span<const Leg> ranks, const Interval& window);

 private:
  void add(std::vector<double>& series, std::size_t step, Nanoseconds time) {
    if (!series.empty()) series[first_ + step] += share_ * milliseconds(time);
  }

  RunResult& result_;
  const double share_;
  const std::size_t first_, steps_;
};

double Series::add(std::span<const Leg> ranks, const Interval& window) {
  double idle_s = 0;
  // Devices are at rest when a leg begins.
  Time before = std::ranges::max_element(ranks, {}, &Leg::begin)->begin;
  for (std::size_t i = 0; i < steps_; ++i) {
    const auto started = [i](const Leg& rank) { return rank.begin + rank.steps[i].start; };
    const Leg& last = *std::ranges::max_element(ranks, {}, started);
    const StepTimes& step = last.steps[i];
    const Time start = started(last), idle_from = std::min(before, start);
    const Time offered = std::clamp(last.begin + step.offered, idle_from, start);
    const Time copied = std::clamp(last.begin + step.copied, offered, start);
    Time done = start;
    Nanoseconds input_wait{};
    for (const Leg& rank : ranks) {
      done = std::max(done, rank.begin + rank.steps[i].completion);
      input_wait = std::max(input_wait, rank.steps[i].input_wait);
    }
    add(result_.step_ms, i, done - before);
    add(result_.input_wait_ms, i, input_wait);
    add(result_.device_idle_ms, i, start - idle_from);
    add(result_.starved_ms, i, offered - idle_from);
    add(result_.copy_exposed_ms, i, copied - offered);
    add(result_.late_ms, i, start - copied);
    // After backward on that rank, until the last rank has its weights.
    const Time computed = last.begin + step.completion - step.exchange;
    add(result_.exchange_exposed_ms, i, done - std::max({computed, start, before}));
    idle_s += seconds_inside(idle_from, start, window);
    before = done;
  }
  return idle_s;
}

/// Samples of one step of all ranks, in the mean: batches that are no images may have any number.
std::int64_t mean_samples(const RankSteps& steps) {
  double samples = 0, count = 0, ranks = 0;
  for (const std::vector<Leg>& legs : steps.legs) {
    ranks = std::max(ranks, static_cast<double>(legs.size()));
    for (const Leg& rank : legs) {
      for (const StepTimes& step : rank.steps) samples += static_cast<double>(step.result.images);
      count += static_cast<double>(rank.steps.size());
    }
  }
  return count > 0 ? std::max<std::int64_t>(1, std::llround(ranks * samples / count)) : 0;
}

/// The devices of a process in a leg.
std::span<const Leg> devices_in(std::span<const Leg> leg, DevicesOf process) {
  const std::size_t first = std::min(process.first, leg.size());
  return leg.subspan(first, std::min(process.count, leg.size() - first));
}

/// Adds the times of each step but the first: the longest of the devices.
void add_waits(std::span<const Leg> devices, std::vector<double>& ready_ms,
               std::vector<double>& waits_ms) {
  std::size_t steps = devices.empty() ? 0 : SIZE_MAX;
  for (const Leg& device : devices) steps = std::min(steps, device.steps.size());
  for (std::size_t i = 1; i < steps; ++i) {
    Nanoseconds ready{}, wait{};
    for (const Leg& device : devices) {
      ready = std::max(ready, device.steps[i].input_wait);
      wait = std::max(wait, device.steps[i].copied - device.steps[i - 1].completion);
    }
    ready_ms.push_back(milliseconds(ready));
    waits_ms.push_back(milliseconds(wait));
  }
}

/// While the culprit is awaited, the other feeders work ahead. So the difference of the waits is
/// too large if those feeders alone would make the devices wait too. `busy_ms`: what a step takes
/// without waiting for its batch.
void take_out_work_ahead(std::span<const RankResult> ranks, double busy_ms, RankSkew& skew) {
  double own_ms = 0, others_ms = 0;
  for (const RankResult& rank : ranks) {
    if (!(rank.batch_ms > 0)) return;  // not known
    double& most_ms = rank.rank == skew.rank ? own_ms : others_ms;
    most_ms = std::max(most_ms, rank.batch_ms);
  }
  skew.more_work_ms = std::max(0.0, own_ms - others_ms);
  const double ahead_ms =
      std::clamp(others_ms - busy_ms, 0.0, std::max(0.0, skew.delay_ms - skew.more_work_ms));
  skew.delay_percent *= 1 - ahead_ms / skew.delay_ms;
  for (double* const ms : {&skew.delay_ms, &skew.delay_low_ms, &skew.delay_high_ms}) {
    *ms -= ahead_ms;
  }
}

}  // namespace

void add_steps(const RankSteps& steps, RunResult& result) {
  if (steps.legs.empty()) return;
  for (std::vector<double>* const series :
       {&result.step_ms, &result.input_wait_ms, &result.device_idle_ms, &result.starved_ms,
        &result.copy_exposed_ms, &result.late_ms, &result.exchange_exposed_ms}) {
    series->clear();
  }
  double images = 0, idle_s = 0;
  std::ptrdiff_t outside = 0;
  result.window_s = 0;
  for (const std::vector<Leg>& ranks : steps.legs) {
    if (ranks.empty()) continue;
    const Interval window = common_interval(ranks);
    if (window.end > window.begin) {
      result.window_s += to_seconds(window.end - window.begin);
      for (const Leg& rank : ranks) {
        images += images_inside(rank, window);
        outside += steps_after(rank, window.end);
      }
    }
    const auto size = [](const Leg& rank) { return rank.steps.size(); };
    const std::size_t together = steps.together == 0 ? ranks.size() : steps.together;
    const double share = static_cast<double>(together) / static_cast<double>(ranks.size());
    Series series(result, size(*std::ranges::min_element(ranks, {}, size)), steps.exchanges, share);
    for (std::size_t first = 0; first < ranks.size(); first += together) {
      idle_s += share * series.add(std::span(ranks).subspan(
                                       first, std::min(together, ranks.size() - first)),
                                   window);
    }
  }
  result.img_per_s = result.window_s > 0 ? images / result.window_s : 0;
  if (result.unit != "img") result.images_per_step = mean_samples(steps);
  result.device_idle_percent = percent(idle_s, result.window_s);
  result.parts = part_times(std::span(&result, 1));
  const bool is_apart = steps.together != 0 && steps.together < steps.legs.front().size();
  if (is_apart) result.facts[kStepsOutside] = static_cast<double>(outside);
  add_accelerator_utilisation(result);
}

void add_rank_waits(const RankSteps& steps, std::span<const DevicesOf> processes,
                    RunResult& result) {
  if (steps.legs.empty() || processes.size() != result.ranks.size()) return;
  std::vector<RankWaits> waits;
  for (std::size_t process = 0; process < processes.size(); ++process) {
    RankResult& rank = result.ranks[process];
    RankWaits& own = waits.emplace_back(RankWaits{rank.rank, rank.host, {}});
    std::vector<double> ready_ms;
    for (const std::vector<Leg>& leg : steps.legs) {
      add_waits(devices_in(leg, processes[process]), ready_ms, own.waits_ms);
    }
    rank.batch_ready = percentiles_of("batch_ready", ready_ms);
    rank.exposed_wait = percentiles_of("exposed_wait", own.waits_ms);
  }
  const bool is_apart = steps.together != 0 && steps.together < steps.legs.front().size();
  if (is_apart || waits.size() < 2) return;
  const double step_ms = statistics::mean(result.step_ms);
  const std::vector<double> last = slowest_percents(waits, step_ms);
  for (std::size_t i = 0; i < last.size(); ++i) result.ranks[i].last_percent = last[i];
  result.rank_skew = find_skew(waits, step_ms);
  for (const RankWaits& rank : waits) {
    if (result.rank_skew->culprit != Culprit::rank || rank.rank != result.rank_skew->rank) continue;
    take_out_work_ahead(result.ranks, step_ms - statistics::mean(rank.waits_ms), *result.rank_skew);
  }
}

double work_ms_of(const RunResult& result) {
  std::map<std::string, std::pair<double, std::int32_t>> workers;  // their work, and their number
  for (const StageUse& stage : result.stages) {
    if (is_outside(stage.role) || stage.role == StageRole::copies) continue;
    auto& [wall_s, threads] = workers[stage.workers];
    wall_s += stage.wall_s;
    threads = std::max(threads, stage.threads);
  }
  double most_s = 0;
  for (const auto& [name, work] : workers) most_s = std::max(most_s, work.first / work.second);
  const auto steps = static_cast<double>(result.step_ms.size());
  return steps > 0 ? 1e3 * most_s / steps : 0;
}

void note_steps_outside(RunResult& result) {
  const double outside = fact_of(result, kStepsOutside).value_or(0);
  if (outside == 0) return;
  result.notes.push_back(fmt::format(
      "ranks do not wait for each other: the rate is that of the {:.2f} s in which all of them "
      "train; {:.0f} steps of slower ranks came later and do not count in it",
      result.window_s, outside));
}

}  // namespace penstock
