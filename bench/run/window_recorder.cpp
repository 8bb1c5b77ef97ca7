// SPDX-License-Identifier: Apache-2.0
#include "bench/run/window_recorder.h"

#include <limits>
#include <optional>
#include <utility>

#include "bench/record/machine.h"
#include "bench/run/accelerator_utilisation.h"
#include "bench/run/trace.h"

namespace penstock {

WindowRecorder::WindowRecorder(RunParts& parts, StepReporter& reporter,
                               std::vector<std::jthread>& stagers)
    : parts_(parts),
      reporter_(reporter),
      stagers_(stagers),
      timing_cost_(parts.setup.config.instrument ? measure_timing_cost(parts.setup.clock)
                                                 : TimingCost{}) {
  window_.outside_reserve = parts.feed.outside_reserve;
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
  window_.legs.push_back({.begin = snapshot(), .end = {}, .log = log_, .ranks = {}});
  leg_open_ = true;
}

void WindowRecorder::end_leg() {
  if (!std::exchange(leg_open_, false)) return;
  WindowLeg& leg = window_.legs.back();
  leg.end = snapshot();
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
  add_accelerator_utilisation(result);
  if (!parts_.setup.config.instrument || window_.legs.empty()) return;
  const std::vector<StageSums> stages = window_.stages();
  result.stages = stage_uses(parts_.setup.probe, stages);
  add_outside_times(parts_.setup.probe, stages, result.facts);
  result.instrumentation_s = instrumentation_seconds(timing_cost_, stages);
  for (const auto& [name, ring] : parts_.rings()) result.queues.push_back(queue_use(name, *ring));
}

}  // namespace penstock
