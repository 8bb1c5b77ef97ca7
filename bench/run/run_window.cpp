// SPDX-License-Identifier: Apache-2.0
#include "bench/run/run_window.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "bench/analysis/rank_steps.h"
#include "bench/record/machine.h"
#include "bench/run/device_memory.h"
#include "bench/run/trace/trace.h"
#include "dataflow/machine/memory_limit.h"
#include "dataflow/stage_timer.h"

namespace penstock {
namespace {

double milliseconds(Nanoseconds time) { return 1e3 * to_seconds(time); }

/// Whether a step waited for other ranks after backward.
bool exchanges_in(const WindowLeg& leg) {
  return std::ranges::any_of(leg.ranks, [](const Leg& rank) {
    return std::ranges::any_of(rank.steps,
                               [](const StepTimes& step) { return step.exchange > Nanoseconds{}; });
  });
}

/// Adds the exchange of gradients in overlapping buckets, if any: means over steps and ranks.
void add_exchange(const RunWindow& window, RunResult& result) {
  ExchangeTimes sum;
  for (const WindowLeg& leg : window.legs) {
    sum += leg.end.exchange;
    sum -= leg.begin.exchange;
  }
  if (sum.steps == 0) return;
  const auto steps = static_cast<double>(sum.steps);
  result.facts["exchange_ms_per_step"] = milliseconds(sum.busy) / steps;
  result.facts["exchange_exposed_ms_per_step"] = milliseconds(sum.exposed) / steps;
  const Nanoseconds least = least_exposed(sum.buckets);
  result.facts["exchange_hideable_ms_per_step"] = milliseconds(sum.busy - least) / steps;
  result.facts["gradient_buckets"] = static_cast<double>(sum.buckets.size());
  for (const BucketTimes& bucket : sum.buckets) {
    result.buckets.push_back({.mib = static_cast<double>(bucket.bytes) / (1 << 20),
                              .lead_ms = milliseconds(bucket.lead) / steps,
                              .exchange_ms = milliseconds(bucket.busy) / steps});
  }
}

}  // namespace

std::size_t RunWindow::steps() const {
  std::size_t count = 0;
  for (const WindowLeg& leg : legs) count += leg.log->ready().size();
  return count;
}

double RunWindow::reserve_at_begin() const {
  return legs.empty() ? 0 : legs.front().begin.reserve() + outside_reserve;
}
double RunWindow::reserve_at_end() const {
  return legs.empty() ? 0 : legs.back().end.reserve() + outside_reserve;
}

std::vector<StageSums> RunWindow::stages() const {
  std::vector<StageSums> sums;
  for (const WindowLeg& leg : legs) {
    sums.resize(leg.end.stages.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i].add(leg.end.stages[i], 1);
      sums[i].add(leg.begin.stages[i], -1);
    }
  }
  return sums;
}

ReserveUse RunWindow::reserve_use() const {
  ReserveUse use{.outside = outside_reserve};
  if (legs.empty()) return use;
  use.start = legs.front().begin.reserve();
  use.end = legs.back().end.reserve();
  use.error = static_cast<double>(std::max<std::size_t>(1, legs.front().ranks.size()));
  for (const WindowLeg& leg : legs) {
    use.consumed += static_cast<double>(leg.end.taken - leg.begin.taken);
  }
  return use;
}

void summarise(const RunWindow& window, const RunConfig& config, RunResult& result) {
  double published = 0, published_s = 0;
  double core_wait_s = 0;
  bool knows_core_wait = !window.legs.empty();
  result.rank_steps.together = window.together;
  for (const WindowLeg& leg : window.legs) {
    for (const StepLog::Step& step : leg.log->ready()) {
      if (step.begins_epoch) result.epoch_begins.push_back(std::ssize(result.losses));
      result.losses.push_back(report_of(step, leg.log->ranks(), config).loss);
    }
    result.rank_steps.legs.push_back(leg.ranks);
    result.rank_steps.exchanges = result.rank_steps.exchanges || exchanges_in(leg);
    const Snapshot &first = leg.begin, &last = leg.end;
    published += static_cast<double>(last.published - first.published);
    published_s += to_seconds(last.time - first.time);
    result.process_cpu_s += last.process_cpu_s - first.process_cpu_s;
    result.staging_cpu_s += last.staging_cpu_s - first.staging_cpu_s;
    knows_core_wait = knows_core_wait && first.core_wait_s && last.core_wait_s;
    core_wait_s += std::max(0.0, last.core_wait_s.value_or(0) - first.core_wait_s.value_or(0));
  }
  if (knows_core_wait) result.facts["waited_for_core_s"] = core_wait_s;
  if (published_s > 0) {
    result.sustained_img_per_s = published * config.batch_size / published_s;
  }
  add_exchange(window, result);
  const auto nominal = static_cast<double>(result.images_per_step);
  add_steps(result.rank_steps, result);
  if (nominal > 0)
    result.sustained_img_per_s *= static_cast<double>(result.images_per_step) / nominal;
  result.reserve_start = window.reserve_at_begin();
  result.reserve_end = window.reserve_at_end();
}

WindowRecorder::WindowRecorder(RunParts& parts, StepReporter& reporter,
                               std::vector<std::jthread>& stagers)
    : parts_(parts),
      reporter_(reporter),
      stagers_(stagers),
      timing_cost_(parts.setup.config.instrument ? measure_timing_cost(parts.setup.clock)
                                                 : TimingCost{}),
      memory_(parts.setup.config.instrument ? host_memory_levels()
                                            : std::vector<MemoryWatch::Level>()) {
  window_.outside_reserve = parts.feed.outside_reserve;
  window_.together = parts.setup.ranks_together();
}

std::int64_t WindowRecorder::most_steps() const {
  const bool traces = parts_.setup.trace != nullptr && parts_.setup.trace->steps_left() > 0;
  return traces ? static_cast<std::int64_t>(parts_.setup.trace->steps_left())
                : std::numeric_limits<std::int64_t>::max();
}

void WindowRecorder::begin_leg(std::size_t steps, std::size_t extended_to) {
  if (Trace* const trace = parts_.setup.trace; trace != nullptr && trace->steps_left() > 0) {
    trace->begin_leg(*parts_.setup.backend, parts_.setup.probe);
    tracing_ = true;
  }
  log_ = &reporter_.begin_leg(window_.steps(), steps, parts_.ranks.size(), extended_to);
  if (parts_.setup.config.instrument) {
    for (auto& [name, ring] : parts_.rings()) ring->monitor().watch(window_.legs.empty());
  }
  if (window_.legs.empty() && parts_.setup.config.instrument) {
    window_.children_before = child_memory();
  }
  window_.legs.push_back({.begin = snapshot(), .end = {}, .log = log_, .ranks = {}});
  leg_open_ = true;
  memory_.begin();
}

void WindowRecorder::end_leg() {
  if (!std::exchange(leg_open_, false)) return;
  memory_.end();
  WindowLeg& leg = window_.legs.back();
  leg.end = snapshot();
  if (parts_.setup.config.instrument) window_.children_after = child_memory();
  for (auto& [name, ring] : parts_.rings()) ring->monitor().stop_watching();
  for (RunParts::Rank& rank : parts_.ranks) leg.ranks.push_back(std::move(rank.leg));
  if (std::exchange(tracing_, false)) parts_.setup.trace->end_leg(*parts_.setup.backend, leg.ranks);
  std::exchange(log_, nullptr)->close();
}

Snapshot WindowRecorder::snapshot() {
  const std::optional<double> core_wait_s =
      parts_.setup.config.instrument ? process_core_wait_seconds() : std::nullopt;
  Snapshot now{.time = parts_.setup.clock.now(),
               .published = parts_.published(),
               .taken = parts_.taken(),
               .process_cpu_s = process_cpu_seconds(),
               .core_wait_s = core_wait_s,
               .exchange = parts_.exchange_times()};
  now.stages = stage_sums(parts_.setup.probe, parts_.setup.clock.now());
  for (std::jthread& thread : stagers_) now.staging_cpu_s += thread_cpu_seconds(thread);
  return now;
}

void WindowRecorder::add_condition(RunResult& result) const {
  if (window_.legs.empty()) return;
  const Condition condition = parts_.setup.backend->condition(window_.legs.front().begin.time,
                                                              window_.legs.back().end.time);
  result.facts.insert(condition.facts.begin(), condition.facts.end());
  result.notes.insert(result.notes.end(), condition.notes.begin(), condition.notes.end());
}

void WindowRecorder::add_measurements(RunResult& result, bool data_ended) const {
  summarise(window_, parts_.setup.config, result);
  // If the data ended, sockets are empty too.
  if (data_ended && !window_.legs.empty()) result.reserve_end -= window_.outside_reserve;
  if (parts_.setup.trace != nullptr) result.operations = parts_.setup.trace->profile().types();
  if (!parts_.setup.config.instrument || window_.legs.empty()) return;
  const std::vector<StageSums> stages = window_.stages();
  result.stages = stage_uses(parts_.setup.probe, stages);
  add_outside_times(parts_.setup.probe, stages, result.facts);
  result.instrumentation_s = instrumentation_seconds(timing_cost_, stages);
  for (const auto& [name, ring] : parts_.rings()) result.queues.push_back(queue_use(name, *ring));
  result.memory = memory_.uses(kWindowParts);
  for (MemoryUse& use : device_memory(parts_, window_.legs.front().begin.time,
                                      window_.legs.back().end.time, kWindowParts)) {
    result.memory.push_back(std::move(use));
  }
  std::string warning =
      add_child_memory(window_.children_before, window_.children_after,
                       to_seconds(window_.legs.back().end.time - window_.legs.front().begin.time),
                       static_cast<double>(available_memory()), result.facts);
  if (!warning.empty()) result.notes.push_back(std::move(warning));
}

}  // namespace penstock
