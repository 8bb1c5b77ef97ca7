// SPDX-License-Identifier: Apache-2.0
#include "bench/analysis/rank_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "bench/analysis/accelerator_utilisation.h"
#include "bench/record/step_parts.h"

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

void note_steps_outside(RunResult& result) {
  const double outside = fact_of(result, kStepsOutside).value_or(0);
  if (outside == 0) return;
  result.notes.push_back(fmt::format(
      "ranks do not wait for each other: the rate is that of the {:.2f} s in which all of them "
      "train; {:.0f} steps of slower ranks came later and do not count in it",
      result.window_s, outside));
}

}  // namespace penstock
