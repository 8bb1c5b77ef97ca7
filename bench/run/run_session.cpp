// SPDX-License-Identifier: Apache-2.0
#include "bench/run/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bench/analysis/rank_steps.h"
#include "bench/config/due_points.h"
#include "bench/config/run_config.h"
#include "bench/config/training_loop.h"
#include "bench/config/training_rules.h"
#include "bench/record/epoch_edges.h"
#include "bench/record/machine.h"
#include "bench/record/statistics.h"
#include "bench/record/wait_cause.h"
#include "bench/run/checkpoint_keeper.h"
#include "bench/run/leg_plan.h"
#include "bench/run/processes/process_run.h"
#include "bench/run/run_outcome.h"
#include "bench/run/run_setup.h"
#include "bench/run/run_window.h"
#include "bench/run/step_reporter.h"
#include "dataflow/clock.h"
#include "dataflow/error.h"
#include "dataflow/probe.h"
#include "trainer/cluster/processes.h"

namespace penstock {
namespace {

/// Steps whose loss or gradients are not finite. Thread-safety: any thread may call any method.
class NonfiniteSteps {
 public:
  /// `probe` receives a note on the first step of each kind. Both arguments must outlive this.
  NonfiniteSteps(const RunConfig& config, Probe& probe) : config_(config), probe_(probe) {}

  /// Called inside the window, but only for nonfinite values; one or several ranks report each
  /// step. A finite loss means that gradients overflowed and the update was skipped. Returns the
  /// failure of a run that must stop, or null.
  std::exception_ptr add(std::int64_t step, bool finite_loss) {
    // An adaptive loss scale causes this occasionally.
    if (finite_loss && counted_steps_of_loss_scale(config_) > 0) {
      const std::lock_guard lock(mutex_);
      skipped_.insert(step);
      return nullptr;
    }
    const std::string where =
        fmt::format("step {} of {} in {}", step + 1, config_.model, config_.precision);
    const std::string text =
        finite_loss ? fmt::format("gradients of {} are not finite, its update was skipped", where)
                    : fmt::format("the loss of {} is not finite", where);
    if (config_.on_nonfinite == "stop") {
      const char* const recommendation =
          finite_loss
              ? "lower --fp16-loss-scale, let it adapt itself with --fp16-enable-auto-loss-scale"
              : "lower --init-learning-rate, warm it up with --num-learning-rate-warmup-epochs, "
                "set --gradient-clip";
      return std::make_exception_ptr(
          DeviceError("{}; {}, or go on with --on-nonfinite continue", text, recommendation));
    }
    const std::lock_guard lock(mutex_);
    std::set<std::int64_t>& steps = finite_loss ? skipped_ : nonfinite_;
    if (steps.empty()) probe_.note(text + "; later ones are only counted");
    steps.insert(step);
    return nullptr;
  }

  void add_to(std::map<std::string, std::int64_t>& counters) const {
    const std::lock_guard lock(mutex_);
    const auto count = [&](const char* name, const std::set<std::int64_t>& steps) {
      if (!steps.empty()) counters[name] = static_cast<std::int64_t>(steps.size());
    };
    count("nonfinite_steps", nonfinite_);
    count("skipped_steps", skipped_);
  }

 private:
  const RunConfig& config_;
  Probe& probe_;
  mutable std::mutex mutex_;
  std::set<std::int64_t> nonfinite_, skipped_;
};

/// Steps may be added to warm-up unless their number matters or other processes count them.
bool may_settle(const RunParts& parts, const DuePoints& evaluations) {
  return parts.exchange.meeting == nullptr && parts.setup.components.servers == nullptr &&
         parts.setup.config.train_dir.empty() && evaluations.empty();
}

/// Ranks that do not wait for each other in every step may be far apart. Another rank may be up to
/// ten times slower than this one, since the first leg began.
Nanoseconds patience_between_legs(const RunSetup& setup, Nanoseconds since_first_leg) {
  constexpr int kSlower = 10;
  const cluster::RankProgress* const progress = setup.processes()->progress();
  const Nanoseconds median = progress == nullptr ? Nanoseconds{} : progress->median_step();
  const bool together = setup.components.servers == nullptr &&
                        setup.components.update->agreement == Agreement::identical;
  return std::max(step_patience(setup.config).step, cluster::StepPatience::kMedians * median) +
         (together ? Nanoseconds{} : (kSlower - 1) * since_first_leg);
}

/// Training steps of this run, by the rank that took the fewest.
std::int64_t steps_taken(const RunParts& parts) {
  const auto step = [](const RunParts::Rank& rank) { return rank.replica->step(); };
  return step(*std::ranges::min_element(parts.ranks, {}, step)) - parts.schedule.first_step;
}

void set(RunResult& result, const Outcome& outcome) {
  result.status = outcome.status;
  result.reason = outcome.reason;
  result.exit_code = outcome.exit_code;
}

/// None if the producer's times are unknown.
std::optional<ReserveUse> use_by_facts(const RunResult& result, const ReserveUse& counted) {
  const auto batches = fact_of(result, "producer_window_batches");
  const auto seconds = fact_of(result, "producer_window_s");
  if (!batches || !seconds) return std::nullopt;
  return use_at_producer(counted, result.window_s, *batches, *seconds);
}

/// Owns the threads of a run and runs leg after leg.
class RunSession {
 public:
  /// All arguments must outlive the session. `abandon` is the source of the token that `parts` was
  /// made with. `evaluator` is null if the run does not evaluate.
  RunSession(RunParts& parts, Evaluator* evaluator, RunListener& listener,
             std::stop_source& abandon);

  /// Call once. A failure during the run is in the result, not thrown.
  RunResult run(std::stop_token external);

 private:
  void start_threads();
  void run_replica(std::size_t rank);
  std::size_t next_leg(std::size_t rank);
  void pause();
  std::int64_t meet_other_processes(Nanoseconds patience, std::int64_t steps);
  void save_at_end();
  bool evaluate();
  std::int64_t position() const;
  std::int64_t steps_until_due() const;
  std::size_t decide_leg();
  std::size_t steps_to_settle();
  std::size_t begin_window();
  std::size_t begin_leg();
  void record_failure(std::exception_ptr failure);
  RunResult collect(bool stopped_from_outside);
  void set_outcome(RunResult& result, bool stopped_from_outside) const;

  RunParts& parts_;
  Evaluator* const evaluator_;
  const RunConfig& config_;
  Clock& clock_;
  RunListener& listener_;
  std::stop_source& abandon_;  // makes ranks leave at once
  std::stop_source ending_;    // requested from outside, or with abandon_
  const std::stop_callback<std::function<void()>> abandoned_;
  StepReporter reporter_;
  const DuePoints evaluation_points_;
  // Used only by the thread of this process's first rank until that has ended.
  CheckpointKeeper keeper_;
  Time first_leg_{};         // when it began
  std::int64_t most_ = 0;    // steps until the next pause; 0: the run ends
  bool is_in_step_ = false;  // also after a step that was abandoned
  std::vector<EvaluationReport> evaluations_;
  bool goal_reached_ = false;
  NonfiniteSteps nonfinite_;

  std::mutex mutex_;
  Gate gate_;
  // All below under mutex_, until the threads have ended.
  std::size_t waiting_ranks_ = 0, leg_steps_ = 0;
  std::uint64_t legs_begun_ = 0;
  WindowRecorder recorder_;
  LegPlan plan_;
  bool data_ended_ = false;
  std::exception_ptr failure_;

  std::vector<std::jthread> stager_threads_, feeder_threads_, replica_threads_;
};

RunSession::RunSession(RunParts& parts, Evaluator* evaluator, RunListener& listener,
                       std::stop_source& abandon)
    : parts_(parts),
      evaluator_(evaluator),
      config_(parts.setup.config),
      clock_(parts.setup.clock),
      listener_(listener),
      abandon_(abandon),
      abandoned_(abandon.get_token(), [this] { ending_.request_stop(); }),
      reporter_(parts.setup.config, listener),
      evaluation_points_(evaluation_points(parts.setup.config, parts.steps_per_epoch())),
      keeper_(parts),
      nonfinite_(config_, parts.setup.probe),
      recorder_(parts, reporter_, stager_threads_),
      plan_({.warm_up = parts.setup.config.num_warmup_batches,
             .window = parts.setup.config.num_batches,
             .taken = parts.schedule.first_step,
             .evaluates_only = parts.setup.config.eval,
             .extends = parts.setup.config.extend_window,
             .may_settle = may_settle(parts, evaluation_points_)}) {
  if (plan_.has_nothing_left() && !config_.eval) {
    parts_.setup.probe.note(fmt::format(
        "nothing is left to train: '{}' has {} steps already; raise --num-batches or --num-epochs",
        config_.train_dir, parts_.schedule.first_step));
  }
}

RunResult RunSession::run(std::stop_token external) {
  const std::string started = utc_now();
  const std::stop_callback forward(external, [this] {
    ending_.request_stop();
    parts_.exchange.stopping.request_stop();
    if (parts_.setup.components.backend->emulates) parts_.setup.device_clock.end();
  });
  listener_.warm_up_begins();
  try {
    start_threads();
  } catch (const std::system_error& error) {
    record_failure(std::make_exception_ptr(
        ConfigError("cannot start the threads of {} device{}: {}; use fewer devices, or raise the "
                    "limits on processes (ulimit -u) and memory (ulimit -v)",
                    parts_.ranks.size(), parts_.ranks.size() == 1 ? "" : "s", error.what())));
    abandon_.request_stop();  // for the threads that did start
  }
  for (std::jthread& thread : replica_threads_) thread.join();
  const bool stopped_from_outside = external.stop_requested() && !plan_.is_complete();
  recorder_.end_leg();
  abandon_.request_stop();
  for (auto* threads : {&stager_threads_, &feeder_threads_}) {
    for (std::jthread& thread : *threads) thread.join();
  }
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
  const bool shares_cores = parts_.setup.components.backend->computes_on_host;
  const auto feed = [&](Feeder& feeder, BatchRing& ring) {
    bodies.push_back({feeder_threads_, [this, shares_cores, &feeder, &ring] {
                        if (shares_cores) yield_to_other_threads();
                        run_to_end(feeder, ring, ending_.get_token());
                      }});
  };
  const auto stage = [&](Stager& stager) {
    bodies.push_back({stager_threads_, [this, shares_cores, &stager] {
                        if (shares_cores) yield_to_other_threads();
                        stager.run(ending_.get_token());
                      }});
  };
  if (!config_.eval) {
    for (const RunParts::HostFeed& host : parts_.feed.hosts) feed(*host.feeder, *host.ring);
    for (RunParts::Rank& rank : parts_.ranks) {
      if (rank.feeder) feed(*rank.feeder, *rank.ring);
      if (rank.stager) stage(*rank.stager);
    }
  }
  for (std::size_t i = 0; i < parts_.ranks.size(); ++i) {
    bodies.push_back({replica_threads_, [this, i] { run_replica(i); }});
  }
  std::vector<Clock::Participant> participants;  // register all before any thread starts
  for (std::size_t i = 0; i < bodies.size(); ++i) participants.emplace_back(clock_);
  // The CPU clocks of stagers are read between legs, so all threads must exist before that. None
  // runs before all exist, since a feeder makes sure that it may start more threads.
  const auto all_exist = std::make_shared<std::latch>(1);
  struct AtEnd {
    std::latch& end;
    ~AtEnd() { end.count_down(); }
  } const at_end{*all_exist};  // also if a thread cannot be started
  const std::lock_guard lock(mutex_);
  for (Body& body : bodies) {
    body.threads.emplace_back(
        [all_exist, run = std::move(body.run), participant = std::move(participants.back())] {
          all_exist->wait();
          run();
        });
    participants.pop_back();
  }
}

void RunSession::run_replica(std::size_t index) {
  RunParts::Rank& rank = parts_.ranks[index];
  const std::stop_token stop = index == 0 ? ending_.get_token() : abandon_.get_token();
  try {
    rank.replica->start();
    while (const std::size_t steps = next_leg(index)) {
      StepLog* const log = recorder_.log();
      const std::int64_t first = rank.replica->step();
      const auto on_step = [&](std::size_t step, const StepTimes& times) {
        if (!times.result.finite) {
          const std::exception_ptr failure = nonfinite_.add(first + static_cast<std::int64_t>(step),
                                                            std::isfinite(times.result.loss));
          if (failure != nullptr) {
            record_failure(failure);
            abandon_.request_stop();
          }
        }
        if (log != nullptr) log->add(step, times);
      };
      if (index == 0) is_in_step_ = true;
      const Replica::Ending ending = rank.replica->run(steps, rank.leg, on_step, stop);
      if (index == 0) is_in_step_ = false;
      if (ending == Replica::Ending::end_of_data) {
        const std::lock_guard lock(mutex_);
        data_ended_ = true;
      }
      if (ending != Replica::Ending::completed) break;
    }
  } catch (...) {
    record_failure(std::current_exception());
  }
  abandon_.request_stop();  // either all ranks take a step or none does
}

void RunSession::record_failure(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  // Errors that ranks throw because of a stop request are not the cause.
  if (failure_ == nullptr && !ending_.stop_requested()) failure_ = std::move(failure);
}

// ---- legs -------------------------------------------------------------------

/// Blocks until all ranks have arrived and rank 0 has decided; 0: the run ends.
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
  recorder_.end_leg();
  lock.unlock();
  pause();
  lock.lock();
  leg_steps_ = decide_leg();
  ++legs_begun_;
  clock_.wake(gate_);
  return leg_steps_;
}

/// Runs on the thread of this process's first rank. Every device is idle, and the other ranks wait:
/// those of other processes once all are at rest, and then until the first process has evaluated,
/// saved and decided, which may take any time. Makes legs begin together.
void RunSession::pause() {
  constexpr Nanoseconds kWhileItLives = std::chrono::hours(24);
  if (parts_.setup.processes() != nullptr) {
    if (legs_begun_ == 0) first_leg_ = clock_.now();
    meet_other_processes(legs_begun_ == 0
                             ? step_patience(config_).first_step
                             : patience_between_legs(parts_.setup, clock_.now() - first_leg_),
                         0);
  }
  if (parts_.setup.is_first()) {
    if (config_.eval || (legs_begun_ > 0 && evaluation_points_.is_due(position()))) {
      goal_reached_ = evaluate() || goal_reached_;
    }
    keeper_.pause(position());
    const bool is_last = plan_.phase() == LegPlan::Phase::judging && !plan_.may_extend();
    if (goal_reached_ || is_last) keeper_.save();  // while servers still answer
  }
  // A trace is a leg of its own, on all processes.
  const std::int64_t traced =
      plan_.phase() == LegPlan::Phase::warm_up ? DuePoints::kNever : recorder_.most_steps();
  most_ =
      meet_other_processes(kWhileItLives, goal_reached_ ? 0 : std::min(steps_until_due(), traced));
}

/// Blocks until all processes are here. Returns the `steps` of the first one.
std::int64_t RunSession::meet_other_processes(Nanoseconds patience, std::int64_t steps) {
  if (parts_.exchange.meeting != nullptr) return parts_.exchange.meeting->meet(patience, steps);
  if (parts_.setup.processes() == nullptr) return steps;
  const char* const what = "waiting for all workers between steps";
  return parse_integer(
      gather(*parts_.setup.processes(), std::to_string(steps), patience, what).front(), what);
}

/// Also saves if the run was stopped, because rank 0's weights belong to whole steps, unless
/// servers hold them or other processes have stopped within a step.
void RunSession::save_at_end() {
  if (failure_ || !keeper_.is_behind()) return;
  if (is_in_step_ || parts_.setup.components.servers != nullptr) {
    parts_.setup.probe.note(
        fmt::format("the run was stopped, and its last step was not saved in --train-dir '{}': {}; "
                    "--save-model-steps or --save-model-secs save more often",
                    config_.train_dir,
                    is_in_step_ ? "ranks stopped within a step"
                                : "the servers of a stopped run do not give their state"));
    return;
  }
  try {
    keeper_.save();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

/// Returns true if the requested accuracy is reached.
bool RunSession::evaluate() {
  const EvaluationReport report =
      evaluator_->run(parts_.ranks.front().replica->step(), reporter_, ending_.get_token());
  if (!report.complete) return false;
  evaluations_.push_back(report);
  const double goal = config_.stop_at_top_1_accuracy;
  if (!(goal > 0) || report.top1 < goal) return false;
  parts_.setup.probe.note(
      fmt::format("training ended after step {}: the top-1 accuracy {:.4f} has reached {}",
                  report.step, report.top1, goal));
  return true;
}

/// Training steps since warm-up. Tables and flags count these.
std::int64_t RunSession::position() const {
  return parts_.ranks.front().replica->step() - config_.num_warmup_batches;
}

/// The number of steps until something is due.
std::int64_t RunSession::steps_until_due() const {
  const std::int64_t next = evaluation_points_.next_after(position());
  return keeper_.cut(position(), next == DuePoints::kNever ? DuePoints::kNever : next - position());
}

/// Called under the lock, with every device idle.
std::size_t RunSession::decide_leg() {
  if (most_ == 0) plan_.end();
  switch (plan_.phase()) {
    case LegPlan::Phase::warm_up:
      return plan_.take_warm_up(most_);
    case LegPlan::Phase::settling: {
      const std::size_t steps = steps_to_settle();
      return steps > 0 ? steps : begin_window();
    }
    case LegPlan::Phase::window:
      return begin_leg();
    case LegPlan::Phase::judging:
      if (!plan_.may_extend() || is_long_enough(recorder_.window().reserve_use())) break;
      return begin_window();
    case LegPlan::Phase::over:
      break;
  }
  plan_.end();
  return 0;
}

/// Feeders keep their settings from the first window on.
std::size_t RunSession::steps_to_settle() {
  const Time now = clock_.now();
  bool settled = true;
  for (const Feeder* feeder : parts_.feeders()) settled = settled && feeder->is_settled();
  const std::size_t steps = plan_.take_settling(settled, now);
  if (steps > 0) return steps;
  for (Feeder* feeder : parts_.feeders()) feeder->settle();
  return 0;
}

std::size_t RunSession::begin_window() {
  recorder_.begin_window();
  plan_.begin_window(config_.extend_window ? recorder_.reserve() : 0, parts_.ranks.size());
  return begin_leg();
}

std::size_t RunSession::begin_leg() {
  const std::size_t steps = plan_.take_window(most_);
  recorder_.begin_leg(steps, plan_.length() > plan_.requested() ? plan_.length() : 0);
  return steps;
}

// ---- the result, after all threads have ended --------------------------------

RunResult RunSession::collect(bool stopped_from_outside) {
  RunResult result;
  result.config = config_;
  result.unit = sample_unit(config_);
  result.images_per_step = std::int64_t{config_.batch_size} * config_.num_gpus;
  result.examples_per_epoch = parts_.schedule.examples_per_epoch;
  result.facts = parts_.setup.backend->facts();
  result.facts.merge(parts_.setup.probe.facts());
  result.counters = parts_.setup.probe.values();
  nonfinite_.add_to(result.counters);
  if (!failure_) {
    if (const auto scale = parts_.loss_scale()) result.facts["loss_scale"] = double{scale->scale};
  }
  result.notes = parts_.setup.probe.notes();
  const bool is_placed =
      result.facts.contains("decode_thread_0_core") || config_.huge_pages != "transparent";
  if (!parts_.feed.hosts.empty() && is_placed) add_slot_map(result, *parts_.feed.hosts[0].ring);
  recorder_.add_condition(result);
  for (const std::string& note : parts_.setup.backend->notes()) result.notes.push_back(note);
  if (evaluator_ != nullptr) {
    for (const std::string& note : evaluator_->notes()) result.notes.push_back(note);
  }
  result.evaluations = evaluations_;
  result.discarded_steps = plan_.discarded_steps();
  recorder_.add_measurements(result, data_ended_ && !plan_.is_complete());
  if (parts_.setup.processes() == nullptr) note_steps_outside(result);
  if (!config_.loop.empty() && result.window_s > 0) {
    const double cores = result.process_cpu_s / result.window_s;
    result.facts["harness_cores"] = cores;
    result.notes.push_back(
        fmt::format("beside the loader, Penstock itself used {:.2f} of {} cores; the copy in the "
                    "loader's process stands for the one to the device in a training loop",
                    cores, usable_cores()));
  }
  if (std::string edges = describe_edges(result); !edges.empty()) {
    result.notes.push_back(std::move(edges));
  }
  if (std::string waits = config_.loop.empty() ? "" : describe_waits(result); !waits.empty()) {
    result.notes.push_back(std::move(waits));
  }
  if (config_.eval && !evaluations_.empty() && evaluations_.back().seconds > 0) {
    const EvaluationReport& report = evaluations_.back();
    result.window_s = report.seconds;
    result.img_per_s = static_cast<double>(report.images) / report.seconds;
  }
  set_outcome(result, stopped_from_outside);
  return result;
}

void RunSession::set_outcome(RunResult& result, bool stopped_from_outside) const {
  const RunWindow& window = recorder_.window();
  const Outcome end =
      outcome_of({.failure = failure_,
                  .stopped = stopped_from_outside,
                  .data_ended = data_ended_ && !plan_.is_complete(),
                  .has_window = plan_.windows() > 0,
                  .warm_up_steps = steps_taken(parts_),
                  .planned_warm_up_steps = plan_.discarded_steps() + plan_.warm_up_left(),
                  .window_steps = result.step_ms.size(),
                  .requested_steps = plan_.requested(),
                  .planned_steps = plan_.length()});
  set(result, end);
  if (end.status != Status::ok || window.legs.empty()) return;
  const WindowReserve reserve{.counted = window.reserve_use(),
                              .at_producer = plan_.windows() == 1 && window.legs.size() == 1
                                                 ? use_by_facts(result, window.reserve_use())
                                                 : std::nullopt,
                              .start = result.reserve_start,
                              .end = result.reserve_end,
                              .devices = config_.num_gpus,
                              .extends_window = config_.extend_window,
                              .costs_something = !parts_.setup.components.feeder->is_ceiling};
  result.facts["most_hidden_percent"] = 100 * most_hidden_share(reserve.use());
  const Outcome judged = outcome_of(reserve);
  set(result, judged);
  if (!judged.note.empty()) result.notes.push_back(judged.note);
  if (!end.note.empty()) result.notes.push_back(end.note);
}

}  // namespace

RunResult run_session(RunParts& parts, Evaluator* evaluator, RunListener& listener,
                      std::stop_source& abandon, std::stop_token stop) {
  return RunSession(parts, evaluator, listener, abandon).run(std::move(stop));
}

}  // namespace penstock
