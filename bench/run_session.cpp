// SPDX-License-Identifier: Apache-2.0
#include "bench/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "bench/machine.h"
#include "bench/peer_watch.h"
#include "bench/process_run.h"
#include "bench/statistics.h"
#include "bench/training_rules.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

/// A window is not extended beyond this many times what was asked for.
constexpr int kMaxWindows = 4;

}  // namespace

RunSession::RunSession(RunParts& parts, Evaluator* evaluator, RunListener& listener,
                       std::stop_source& abandon)
    : parts_(parts),
      evaluator_(evaluator),
      config_(parts.config),
      clock_(parts.clock),
      listener_(listener),
      abandon_(abandon),
      abandoned_(abandon.get_token(), [this] { ending_.request_stop(); }),
      reporter_(parts.config, listener),
      evaluation_points_(evaluation_points(parts.config, parts.steps_per_epoch())),
      keeper_(parts),
      timing_cost_(parts.config.instrument ? measure_timing_cost(parts.clock) : TimingCost{}) {
  window_.outside_reserve = parts.outside_reserve;
  // A run that continues others takes the steps that are left, the last one measured.
  const std::int64_t left = config_.num_warmup_batches + config_.num_batches - parts_.first_step;
  warm_up_left_ = std::clamp<std::int64_t>(left - 1, 0, config_.num_warmup_batches);
  window_left_ = std::max<std::int64_t>(left - warm_up_left_, 0);
  if (left <= 0 && !config_.eval) {
    parts_.probe.note(
        fmt::format("nothing is left to train: '{}' has {} steps already; raise "
                    "--num-batches or --num-epochs",
                    config_.train_dir, parts_.first_step));
  }
}

RunResult RunSession::run(std::stop_token external) {
  const std::string started = utc_now();
  const std::stop_callback forward(external, [this] {
    ending_.request_stop();
    parts_.stopping.request_stop();
  });
  listener_.warm_up_begins();
  try {
    start_threads();
  } catch (const std::system_error& error) {
    record_failure(std::make_exception_ptr(ConfigError(fmt::format(
        "cannot start the threads of {} device{}: {}; use fewer devices, or raise the limits on "
        "processes (ulimit -u) and memory (ulimit -v)",
        parts_.ranks.size(), parts_.ranks.size() == 1 ? "" : "s", error.what()))));
    abandon_.request_stop();  // for those that did start
  }
  for (std::jthread& thread : replica_threads_) thread.join();
  const bool stopped_from_outside = external.stop_requested() && !window_complete_;
  end_leg();
  abandon_.request_stop();
  join_threads();
  save_at_end();
  reporter_.close();
  RunResult result = collect(stopped_from_outside);
  result.started = started;
  return result;
}

// ---- threads ----------------------------------------------------------------

void RunSession::start_threads() {
  struct Body {
    std::vector<std::jthread>& threads;
    std::function<void()> run;
  };
  std::vector<Body> bodies;
  const auto feed = [&](Feeder& feeder, BatchRing& ring) {
    bodies.push_back({feeder_threads_, [this, &feeder, &ring] {
                        if (shares_cores()) yield_to_other_threads();
                        run_to_end(feeder, ring, ending_.get_token());
                      }});
  };
  const auto stage = [&](Stager& stager) {
    bodies.push_back({stager_threads_, [this, &stager] {
                        if (shares_cores()) yield_to_other_threads();
                        stager.run(ending_.get_token());
                      }});
  };
  if (!config_.eval) {
    if (parts_.host_feeder) feed(*parts_.host_feeder, *parts_.host_ring);
    for (RunParts::Rank& rank : parts_.ranks) {
      if (rank.feeder) feed(*rank.feeder, *rank.ring);
      if (rank.stager) stage(*rank.stager);
    }
  }
  for (std::size_t i = 0; i < parts_.ranks.size(); ++i) {
    bodies.push_back({replica_threads_, [this, i] { run_replica(i); }});
  }
  std::vector<Clock::Participant> participants;  // all are there before any thread starts
  for (std::size_t i = 0; i < bodies.size(); ++i) participants.emplace_back(clock_);
  // Stagers' CPU clocks are read between legs, which may not happen before all are here.
  const std::lock_guard lock(mutex_);
  for (Body& body : bodies) {
    body.threads.emplace_back(
        [run = std::move(body.run), participant = std::move(participants.back())] { run(); });
    participants.pop_back();
  }
}

bool RunSession::shares_cores() const { return parts_.components.backend->computes_on_host; }

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
        if (!times.result.finite) {
          warn_nonfinite(first + static_cast<std::int64_t>(step), std::isfinite(times.result.loss));
        }
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

/// Runs on a replica's thread, inside the window, but not in runs that are as they should be. With
/// a finite loss, gradients overflowed, and the update was skipped, as a loss scale that adapts
/// itself now and then makes it.
void RunSession::warn_nonfinite(std::int64_t step, bool finite_loss) {
  if (finite_loss && counted_steps_of_loss_scale(config_) > 0) {
    const std::lock_guard lock(mutex_);
    skipped_steps_.insert(step);
    return;
  }
  const std::string where =
      fmt::format("step {} of {} in {}", step + 1, config_.model, config_.precision);
  const std::string text =
      finite_loss ? fmt::format("gradients of {} are not finite, its update was skipped", where)
                  : fmt::format("the loss of {} is not finite", where);
  if (config_.on_nonfinite == "stop") {
    const char* const cure = finite_loss ? "lower --fp16-loss-scale, let it adapt itself with "
                                           "--fp16-enable-auto-loss-scale"
                                         : "lower --init-learning-rate, warm it up with "
                                           "--num-learning-rate-warmup-epochs, set --gradient-clip";
    record_failure(std::make_exception_ptr(
        DeviceError(fmt::format("{}; {}, or go on with --on-nonfinite continue", text, cure))));
    abandon_.request_stop();
    return;
  }
  const std::lock_guard lock(mutex_);
  std::set<std::int64_t>& steps = finite_loss ? skipped_steps_ : nonfinite_steps_;
  if (steps.empty()) parts_.probe.note(text + "; later ones are only counted");
  steps.insert(step);
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
  end_leg();
  lock.unlock();
  pause();
  meet_other_processes();
  lock.lock();
  leg_steps_ = decide_leg();
  ++legs_begun_;
  clock_.wake(gate_);
  return leg_steps_;
}

/// On rank 0's thread, with every device idle and the other ranks waiting.
void RunSession::pause() {
  if (config_.eval || (legs_begun_ > 0 && evaluation_points_.is_due(position()))) {
    goal_reached_ = evaluate() || goal_reached_;
  }
  keeper_.pause(position());
}

/// So that legs begin together. On rank 0's thread, with every device idle.
void RunSession::meet_other_processes() {
  if (parts_.meeting != nullptr) return parts_.meeting->meet(patience_between_legs());
  if (parts_.components.servers == nullptr) return;
  gather(*parts_.components.processes, "", patience_between_legs(),
         "waiting for all workers between steps");
}

/// Ranks that do not wait for each other in every step may be far apart: whoever is at work is
/// taken to be up to ten times slower than this one.
Nanoseconds RunSession::patience_between_legs() {
  constexpr int kSlower = 10;
  const StepPatience patience = step_patience(config_);
  const Time now = clock_.now();
  if (legs_begun_ == 0) {
    first_leg_ = now;
    return patience.first_step;
  }
  const RankProgress* const progress = parts_.components.processes->progress();
  const Nanoseconds median = progress == nullptr ? Nanoseconds{} : progress->median_step();
  const bool together = parts_.components.servers == nullptr &&
                        parts_.components.update->agreement == Agreement::identical;
  return std::max(patience.step, StepPatience::kMedians * median) +
         (together ? Nanoseconds{} : (kSlower - 1) * (now - first_leg_));
}

/// Also where the run was stopped: rank 0's weights are those after whole steps.
void RunSession::save_at_end() {
  if (failure_) return;
  try {
    keeper_.save();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

/// True: the accuracy that was asked for is reached.
bool RunSession::evaluate() {
  const EvaluationReport report =
      evaluator_->run(parts_.ranks.front().replica->step(), reporter_, ending_.get_token());
  if (!report.complete) return false;
  evaluations_.push_back(report);
  const double goal = config_.stop_at_top_1_accuracy;
  if (!(goal > 0) || report.top1 < goal) return false;
  parts_.probe.note(
      fmt::format("training ended after step {}: the top-1 accuracy {:.4f} has reached {}",
                  report.step, report.top1, goal));
  return true;
}

/// Training steps since warm-up: what tables count, and flags about steps mean.
std::int64_t RunSession::position() const {
  return parts_.ranks.front().replica->step() - config_.num_warmup_batches;
}

/// How many of `steps` may be taken before something is due.
std::size_t RunSession::cut(std::int64_t steps) const {
  const std::int64_t next = evaluation_points_.next_after(position());
  if (next != DuePoints::kNever) steps = std::min(steps, next - position());
  return static_cast<std::size_t>(keeper_.cut(position(), steps));
}

/// Under the lock, with every device idle.
std::size_t RunSession::decide_leg() {
  if (config_.eval || goal_reached_ || (windows_ == 0 && window_left_ == 0)) {
    window_complete_ = true;
    return 0;
  }
  if (warm_up_left_ > 0) {
    const std::size_t steps = cut(warm_up_left_);
    warm_up_left_ -= static_cast<std::int64_t>(steps);
    discarded_steps_ += static_cast<std::int64_t>(steps);
    return steps;
  }
  if (windows_ == 0) {
    const std::size_t steps = steps_to_settle();
    discarded_steps_ += static_cast<std::int64_t>(steps);
    return steps > 0 ? steps : begin_window();
  }
  if (window_left_ > 0) return begin_leg();
  if (config_.extend_window && windows_ < kMaxWindows && !is_long_enough(window_.reserve_use())) {
    discarded_steps_ += static_cast<std::int64_t>(window_.wanted);
    return begin_window();
  }
  window_complete_ = true;
  return 0;
}

/// More steps of warm-up, for feeders that have something left to find out. Where the number of
/// steps matters, or other processes count them, there are none; nor for ever.
std::size_t RunSession::steps_to_settle() {
  constexpr Nanoseconds kLongest = std::chrono::seconds(30);
  constexpr std::int64_t kSteps = 10;
  const Time now = clock_.now();
  if (settling_since_ == Time{}) settling_since_ = now;
  const bool may_add = parts_.meeting == nullptr && parts_.components.servers == nullptr &&
                       config_.train_dir.empty() && evaluation_points_.empty();
  bool settled = true;
  for (const Feeder* feeder : feeders()) settled = settled && feeder->is_settled();
  if (!settled && may_add && now - settling_since_ < kLongest) return kSteps;
  for (Feeder* feeder : feeders()) feeder->settle();
  return 0;
}

std::vector<Feeder*> RunSession::feeders() const {
  std::vector<Feeder*> feeders;
  if (parts_.host_feeder) feeders.push_back(parts_.host_feeder.get());
  for (const RunParts::Rank& rank : parts_.ranks) {
    if (rank.feeder) feeders.push_back(rank.feeder.get());
  }
  return feeders;
}

std::size_t RunSession::begin_window() {
  ++windows_;
  window_.legs.clear();
  if (windows_ == 1) wanted_steps_ = window_left_;
  window_.asked = window_.wanted = static_cast<std::size_t>(wanted_steps_);
  if (config_.extend_window) {
    const double reserve = snapshot().reserve() + window_.outside_reserve;
    const double batches = kMinReserves * std::max(0.0, reserve);
    const auto ranks = static_cast<double>(parts_.ranks.size());
    window_.wanted = std::max(window_.wanted, static_cast<std::size_t>(batches / ranks) + 1);
  }
  window_left_ = static_cast<std::int64_t>(window_.wanted);
  return begin_leg();
}

std::size_t RunSession::begin_leg() {
  std::size_t steps = cut(window_left_);
  if (Trace* const trace = parts_.trace; trace != nullptr && trace->steps_left() > 0) {
    steps = std::min(steps, trace->steps_left());
    trace->begin_leg(*parts_.backend, parts_.probe);
    tracing_ = true;
  }
  window_left_ -= static_cast<std::int64_t>(steps);
  log_ = &reporter_.begin_leg(window_.steps(), steps, parts_.ranks.size(),
                              window_.wanted > window_.asked ? window_.wanted : 0);
  watch_rings(window_.legs.empty());
  window_.legs.push_back({.begin = snapshot(), .end = {}, .log = log_, .ranks = {}});
  leg_open_ = true;
  return steps;
}

void RunSession::end_leg() {
  if (!std::exchange(leg_open_, false)) return;
  WindowLeg& leg = window_.legs.back();
  leg.end = snapshot();
  for (auto& [name, ring] : rings()) ring->stop_watching();
  for (RunParts::Rank& rank : parts_.ranks) leg.ranks.push_back(std::move(rank.leg));
  if (std::exchange(tracing_, false)) parts_.trace->end_leg(*parts_.backend, leg.ranks);
  std::exchange(log_, nullptr)->close();
}

std::vector<std::pair<std::string, BatchRing*>> RunSession::rings() const {
  std::vector<std::pair<std::string, BatchRing*>> rings;
  if (parts_.host_ring) rings.emplace_back("host ring", parts_.host_ring.get());
  for (std::size_t rank = 0; rank < parts_.ranks.size(); ++rank) {
    rings.emplace_back(fmt::format("device ring {}", rank), parts_.ranks[rank].ring.get());
  }
  return rings;
}

void RunSession::watch_rings(bool afresh) {
  if (!config_.instrument) return;
  for (auto& [name, ring] : rings()) ring->watch(afresh);
}

Snapshot RunSession::snapshot() {
  const std::optional<double> core_wait_s =
      config_.instrument ? process_core_wait_seconds() : std::nullopt;
  Snapshot now{.time = clock_.now(),
               .published = parts_.published(),
               .taken = parts_.taken(),
               .process_cpu_s = process_cpu_seconds(),
               .core_wait_s = core_wait_s,
               .exchange = parts_.exchange_times()};
  now.stages = stage_sums(parts_.probe, clock_.now());
  for (std::jthread& thread : stager_threads_) now.staging_cpu_s += thread_cpu_seconds(thread);
  return now;
}

}  // namespace penstock
