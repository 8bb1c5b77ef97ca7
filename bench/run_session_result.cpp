// SPDX-License-Identifier: Apache-2.0
// What a session's run came to, once its threads have ended.
#include <fmt/format.h>

#include "bench/accelerator_utilisation.h"
#include "bench/exit_code.h"
#include "bench/run_session.h"
#include "bench/slot_memory.h"
#include "bench/statistics.h"

namespace penstock {

RunResult RunSession::collect(bool stopped_from_outside) {
  RunResult result;
  result.config = config_;
  result.images_per_step = std::int64_t{config_.batch_size} * config_.num_gpus;
  result.examples_per_epoch = parts_.examples_per_epoch;
  result.facts = parts_.backend->facts();
  result.facts.merge(parts_.probe.facts());
  result.counters = parts_.probe.values();
  const auto count = [&](const char* name, const std::set<std::int64_t>& steps) {
    if (!steps.empty()) result.counters[name] = static_cast<std::int64_t>(steps.size());
  };
  count("nonfinite_steps", nonfinite_steps_);
  count("skipped_steps", skipped_steps_);
  if (!failure_) {
    if (const auto scale = parts_.loss_scale()) result.facts["loss_scale"] = double{scale->scale};
  }
  result.notes = parts_.probe.notes();
  const bool is_placed =
      result.facts.contains("decode_thread_0_core") || config_.huge_pages != "transparent";
  if (parts_.host_ring && is_placed) add_slot_map(result, *parts_.host_ring);
  add_condition(result);
  for (const std::string& note : parts_.backend->notes()) result.notes.push_back(note);
  if (evaluator_ != nullptr) {
    for (const std::string& note : evaluator_->notes()) result.notes.push_back(note);
  }
  result.evaluations = evaluations_;
  result.discarded_steps = discarded_steps_;
  summarise(window_, config_, result);
  // Nothing is left in sockets either.
  if (data_ended_ && !window_complete_ && !window_.legs.empty()) {
    result.reserve_end -= window_.outside_reserve;
  }
  add_accelerator_utilisation(result);
  if (config_.instrument && !window_.legs.empty()) {
    const std::vector<StageSums> stages = window_.stages();
    result.stages = stage_uses(parts_.probe, stages);
    add_outside_times(parts_.probe, stages, result.facts);
    result.instrumentation_s = instrumentation_seconds(timing_cost_, stages);
    for (const auto& [name, ring] : rings()) result.queues.push_back(queue_use(name, *ring));
  }
  if (config_.eval && !evaluations_.empty() && evaluations_.back().seconds > 0) {
    const EvaluationReport& report = evaluations_.back();
    result.window_s = report.seconds;
    result.img_per_s = static_cast<double>(report.images) / report.seconds;
  }
  set_outcome(result, stopped_from_outside);
  return result;
}

/// How the devices were from the window's begin to its end.
void RunSession::add_condition(RunResult& result) const {
  if (window_.legs.empty()) return;
  const Condition condition =
      parts_.backend->condition(window_.legs.front().begin.time, window_.legs.back().end.time);
  result.facts.insert(condition.facts.begin(), condition.facts.end());
  result.notes.insert(result.notes.end(), condition.notes.begin(), condition.notes.end());
}

void RunSession::set_outcome(RunResult& result, bool stopped_from_outside) const {
  const std::size_t steps = result.step_ms.size();
  if (failure_) {
    result.status = Status::failed;
    result.exit_code = exit_code_of(failure_);
    try {
      std::rethrow_exception(failure_);
    } catch (const std::exception& error) {
      result.reason = failure_text(error);
    }
  } else if (stopped_from_outside) {
    result.status = Status::partial;
    result.reason = fmt::format("stopped after {} steps of the window", steps);
    result.exit_code = 130;
  } else if (data_ended_ && !window_complete_ && steps < window_.asked) {
    result.status = Status::partial;
    result.reason =
        fmt::format("the feeder's data ended after {} of {} steps", steps, window_.asked);
    result.exit_code = 6;
  } else if (!window_.legs.empty()) {
    judge_reserve(result);
    if (data_ended_ && !window_complete_) {
      result.notes.push_back(
          fmt::format("the feeder's data ended after {} of {} steps, to which the window of {} was "
                      "extended",
                      steps, window_.wanted, window_.asked));
    }
  }
}

/// By the times at which the producer sent its batches, where the run knows them: those in sockets
/// are then counted as well. Empty: it does not.
std::optional<ReserveUse> RunSession::use_at_producer(const RunResult& result) const {
  constexpr double kLeastShare = 0.5;  // of the window
  const auto batches = result.facts.find("producer_window_batches");
  const auto seconds = result.facts.find("producer_window_s");
  const bool known = batches != result.facts.end() && seconds != result.facts.end();
  if (!known || windows_ != 1 || window_.legs.size() != 1) return std::nullopt;
  if (seconds->second < kLeastShare * result.window_s) return std::nullopt;
  const ReserveUse counted = window_.reserve_use();
  const double consumed = counted.consumed / result.window_s * seconds->second;  // meanwhile
  return ReserveUse{
      .consumed = consumed, .start = consumed, .end = batches->second, .error = counted.error};
}

/// Did batches of before the window decide its rate? Where they may be a part of it, a note says
/// which; a ceiling's cost nothing to make.
void RunSession::judge_reserve(RunResult& result) const {
  const ReserveUse counted = window_.reserve_use();
  const ReserveUse use = use_at_producer(result).value_or(counted);
  const double share = most_hidden_share(use);
  result.facts["most_hidden_percent"] = 100 * share;
  const std::string remedy = fmt::format(
      "measure at least {:.0f} steps{}",
      std::max(kMinReserves * result.reserve_start / config_.num_gpus + 1, kMinReserves),
      config_.extend_window ? "" : ", or let --extend-window do it");
  const std::string outside =
      counted.outside > 0 ? fmt::format(", up to {:.0f} of them in sockets", counted.outside) : "";
  if (is_draining(use)) {
    result.status = Status::draining;
    result.reason = fmt::format(
        "{:.0f} batches lay ready when the window of {:.0f} began{}, and {:.0f} at its end, so "
        "that "
        "its rate need not last; {}",
        result.reserve_start, counted.consumed, outside, result.reserve_end, remedy);
    if (use.consumed != counted.consumed) {
      result.reason = fmt::format(
          "the producer sent {:.0f} batches while {:.0f} were trained on: it does not "
          "keep up, and batches that lay ready hid that; {}",
          use.end, use.consumed, remedy);
    }
  } else if (share > 1 / kMinReserves && !is_long_enough(counted) &&
             !parts_.components.feeder->is_ceiling) {
    result.notes.push_back(fmt::format(
        "up to {:.0f} % of the window's {:.0f} batches may have been made before it ({:.0f} lay "
        "ready{}): the rate that lasts may be lower by that share; {}",
        100 * share, counted.consumed, result.reserve_start, outside, remedy));
  }
}

}  // namespace penstock
