// SPDX-License-Identifier: Apache-2.0
#include "bench/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/exit_code.h"
#include "bench/machine.h"
#include "bench/statistics.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

/// A window is not extended beyond this many times what was asked for.
constexpr int kMaxWindows = 4;

}  // namespace

RunSession::RunSession(RunParts& parts, RunListener& listener, std::stop_source& abandon)
    : parts_(parts),
      config_(parts.config),
      clock_(parts.clock),
      listener_(listener),
      abandon_(abandon),
      abandoned_(abandon.get_token(), [this] { ending_.request_stop(); }),
      reporter_(parts.config, listener),
      warm_up_left_(parts.config.num_warmup_batches) {
  window_.outside_reserve = parts.outside_reserve;
}

RunResult RunSession::run(std::stop_token external) {
  const std::string started = utc_now();
  const std::stop_callback forward(external, [this] { ending_.request_stop(); });
  listener_.warm_up_begins();
  start_threads();
  for (std::jthread& thread : replica_threads_) thread.join();
  const bool stopped_from_outside = external.stop_requested() && !window_complete_;
  end_leg();
  abandon_.request_stop();
  join_threads();
  reporter_.close();
  RunResult result = collect(stopped_from_outside);
  result.started = started;
  return result;
}

// ---- threads ----------------------------------------------------------------

void RunSession::start_threads() {
  std::vector<Clock::Participant> participants;  // all are there before any thread starts
  const std::size_t ranks = parts_.ranks.size();
  const std::size_t count = ranks + (parts_.feeds_devices() ? ranks : 1 + ranks);
  for (std::size_t i = 0; i < count; ++i) participants.emplace_back(clock_);
  const auto start = [&](std::vector<std::jthread>& threads, auto body) {
    threads.emplace_back(
        [body, participant = std::move(participants.back())]() mutable { body(); });
    participants.pop_back();
  };
  const auto feed = [this](Feeder& feeder, BatchRing& ring) {
    if (parts_.components.backend->computes_on_host) yield_to_other_threads();
    run_to_end(feeder, ring, ending_.get_token());
  };
  // Stagers' CPU clocks are read between legs, which may not happen before all are here.
  const std::lock_guard lock(mutex_);
  for (RunParts::Rank& rank : parts_.ranks) {
    if (parts_.feeds_devices()) {
      start(feeder_threads_, [&rank, feed] { feed(*rank.feeder, *rank.ring); });
    } else {
      start(stager_threads_, [this, &rank] {
        if (parts_.components.backend->computes_on_host) yield_to_other_threads();
        rank.stager->run(ending_.get_token());
      });
    }
  }
  if (!parts_.feeds_devices()) {
    start(feeder_threads_, [this, feed] { feed(*parts_.host_feeder, *parts_.host_ring); });
  }
  for (std::size_t i = 0; i < ranks; ++i) {
    start(replica_threads_, [this, i] { run_replica(i); });
  }
}

void RunSession::join_threads() {
  for (auto* threads : {&stager_threads_, &feeder_threads_}) {
    for (std::jthread& thread : *threads) thread.join();
  }
}

void RunSession::run_replica(std::size_t index) {
  RunParts::Rank& rank = parts_.ranks[index];
  const std::stop_token stop = index == 0 ? ending_.get_token() : abandon_.get_token();
  try {
    rank.replica->start();
    while (const std::size_t steps = next_leg(index)) {
      StepLog* const log = log_;
      const std::int64_t first = rank.replica->step();
      const auto on_step = [&](std::size_t step, const StepTimes& times) {
        if (!times.result.finite) warn_nonfinite(first + static_cast<std::int64_t>(step));
        if (log != nullptr) log->add(step, times);
      };
      const Replica::Ending ending = rank.replica->run(steps, rank.leg, on_step, stop);
      if (ending == Replica::Ending::end_of_data) {
        const std::lock_guard lock(mutex_);
        data_ended_ = true;
      }
      if (ending != Replica::Ending::completed) break;
    }
  } catch (...) {
    record_failure(std::current_exception());
  }
  abandon_.request_stop();  // a step is taken by all ranks or by none
}

/// Runs on a replica's thread, inside the window, but not in runs that are as they should be.
void RunSession::warn_nonfinite(std::int64_t step) {
  const std::string text = fmt::format("the loss of step {} of {} in {} is not finite", step + 1,
                                       config_.model, config_.precision);
  if (config_.on_nonfinite == "stop") {
    record_failure(std::make_exception_ptr(
        DeviceError(text + "; lower --init-learning-rate, warm it up with "
                           "--num-learning-rate-warmup-epochs, set --gradient-clip, or go on with "
                           "--on-nonfinite continue")));
    abandon_.request_stop();
    return;
  }
  const std::lock_guard lock(mutex_);
  if (nonfinite_steps_++ == 0) parts_.probe.note(text + "; later ones are only counted");
}

void RunSession::record_failure(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  // What ranks throw because the run is being stopped is not a reason of its own.
  if (failure_ == nullptr && !ending_.stop_requested()) failure_ = std::move(failure);
}

// ---- legs -------------------------------------------------------------------

/// Blocks until all ranks are here and rank 0 has decided; 0: the run ends.
std::size_t RunSession::next_leg(std::size_t rank) {
  std::unique_lock lock(mutex_);
  const std::uint64_t leg = legs_begun_;
  ++waiting_ranks_;
  clock_.wake(gate_);
  const std::stop_token stop = abandon_.get_token();
  if (rank != 0) {
    return clock_.wait(lock, gate_, stop, [&] { return legs_begun_ != leg; }) ? leg_steps_ : 0;
  }
  const auto all_here = [&] { return waiting_ranks_ == parts_.ranks.size(); };
  if (!clock_.wait(lock, gate_, stop, all_here)) return 0;
  waiting_ranks_ = 0;
  leg_steps_ = decide_leg();
  ++legs_begun_;
  clock_.wake(gate_);
  return leg_steps_;
}

/// Under the lock, with every device idle.
std::size_t RunSession::decide_leg() {
  end_leg();
  if (warm_up_left_ > 0) {
    const std::int64_t steps = std::exchange(warm_up_left_, 0);
    discarded_steps_ += steps;
    return static_cast<std::size_t>(steps);
  }
  if (windows_ == 0) return begin_window();
  if (config_.extend_window && windows_ < kMaxWindows && window_.is_draining()) {
    discarded_steps_ += static_cast<std::int64_t>(window_.wanted);
    return begin_window();
  }
  window_complete_ = true;
  return 0;
}

std::size_t RunSession::begin_window() {
  ++windows_;
  window_.legs.clear();
  window_.wanted = static_cast<std::size_t>(config_.num_batches);
  if (config_.extend_window) {
    const double reserve = snapshot().reserve() + window_.outside_reserve;
    const double batches = kMinReserves * std::max(0.0, reserve);
    const auto ranks = static_cast<double>(parts_.ranks.size());
    window_.wanted = std::max(window_.wanted, static_cast<std::size_t>(batches / ranks) + 1);
  }
  return begin_leg(window_.wanted);
}

std::size_t RunSession::begin_leg(std::size_t steps) {
  log_ = &reporter_.begin_leg(window_.steps(), steps, parts_.ranks.size());
  window_.legs.push_back({.begin = snapshot(), .end = {}, .log = log_, .ranks = {}});
  leg_open_ = true;
  return steps;
}

void RunSession::end_leg() {
  if (!std::exchange(leg_open_, false)) return;
  WindowLeg& leg = window_.legs.back();
  leg.end = snapshot();
  for (RunParts::Rank& rank : parts_.ranks) leg.ranks.push_back(std::move(rank.leg));
  std::exchange(log_, nullptr)->close();
}

Snapshot RunSession::snapshot() {
  Snapshot now{.time = clock_.now(),
               .published = parts_.published(),
               .taken = parts_.taken(),
               .process_cpu_s = process_cpu_seconds()};
  for (std::jthread& thread : stager_threads_) now.staging_cpu_s += thread_cpu_seconds(thread);
  return now;
}

// ---- results ----------------------------------------------------------------

RunResult RunSession::collect(bool stopped_from_outside) {
  RunResult result;
  result.config = config_;
  result.images_per_step = std::int64_t{config_.batch_size} * config_.num_gpus;
  result.facts = parts_.backend->facts();
  result.counters = parts_.probe.values();
  if (nonfinite_steps_ > 0) result.counters["nonfinite_steps"] = nonfinite_steps_;
  result.notes = parts_.probe.notes();
  result.discarded_steps = discarded_steps_;
  summarise(window_, config_, result);
  set_outcome(result, stopped_from_outside);
  return result;
}

void RunSession::set_outcome(RunResult& result, bool stopped_from_outside) const {
  const std::size_t steps = result.step_ms.size();
  if (failure_) {
    result.status = Status::failed;
    result.exit_code = exit_code_of(failure_);
    try {
      std::rethrow_exception(failure_);
    } catch (const std::exception& error) {
      result.reason = error.what();
    }
  } else if (stopped_from_outside) {
    result.status = Status::partial;
    result.reason = fmt::format("stopped after {} steps of the window", steps);
    result.exit_code = 130;
  } else if (data_ended_ && !window_complete_) {
    result.status = Status::partial;
    result.reason =
        fmt::format("the feeder's data ended after {} of {} steps", steps, config_.num_batches);
    result.exit_code = 6;
  } else if (window_.is_draining()) {
    result.status = Status::draining;
    result.reason = fmt::format(
        "{:.0f} batches lay ready when the window began and {:.0f} at its end; measure at least "
        "{:.0f} steps, or let --extend-window do it",
        result.reserve_start, result.reserve_end,
        kMinReserves * result.reserve_start / config_.num_gpus + 1);
  }
}

}  // namespace penstock
