// SPDX-License-Identifier: Apache-2.0
#include "bench/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

#include "bench/exit_code.h"
#include "bench/machine.h"
#include "bench/statistics.h"
#include "bench/step_log.h"
#include "bench/training_rules.h"
#include "dataflow/batch_ring.h"
#include "dataflow/error.h"
#include "dataflow/probe.h"
#include "dataflow/stager.h"
#include "trainer/collectives/threads.h"
#include "trainer/initialise.h"
#include "trainer/replica.h"

namespace penstock {
namespace {

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }
double milliseconds(Nanoseconds time) { return 1e3 * seconds(time); }

/// Outputs of models where --classes is not given.
constexpr std::int32_t kImageNetClasses = 1000;

/// A window is not extended beyond this many times what was asked for.
constexpr int kMaxWindows = 4;

}  // namespace

std::string_view to_string(Status status) {
  constexpr std::string_view kNames[] = {"ok", "skipped", "failed", "partial", "draining"};
  return kNames[static_cast<std::size_t>(status)];
}

Options options_of(std::string_view text, std::span<const OptionSpec> specs) {
  const ComponentText parts = parse_component(text);
  return Options(parts.name, specs, parts);
}

RunConfig resolve(RunConfig config, const Runner::Components& components) {
  if (config.batch_size == 0) config.batch_size = components.model->batch;
  const ImageShape& image = components.model->image;
  if (config.image_size == 0 && image.height == image.width) config.image_size = image.height;
  if (config.classes == 0) config.classes = kImageNetClasses;
  config.gradient_reduction = resolve_gradient_reduction(config);
  if (config.compute_threads == 0) {
    config.compute_threads = std::max(1, usable_cores() / config.num_gpus);
  }
  if (config.feeder_threads == 0) config.feeder_threads = usable_cores();
  if (components.feeder->reads_files && config.data_dir.empty()) config.data_dir = "data/train";
  return config;
}

Runner::Components find_components(const RunConfig& config) {
  const auto name = [](const std::string& text) { return parse_component(text).name; };
  return {&find_entry(feeder_table(), name(config.fake_location)),
          &find_entry(model_table(), name(config.model)),
          &find_entry(backend_table(), name(config.device)),
          &find_entry(update_table(), name(config.variable_update)),
          &find_entry(optimizer_table(), name(config.optimizer))};
}

// ---- wiring -----------------------------------------------------------------

/// All parts of one run, in the order in which they are made; threads come last.
class Runner::Wiring {
 public:
  Wiring(const RunConfig& config, Clock& clock, const Components& components);
  RunResult run(RunListener& listener, std::stop_token external);

  const RunConfig config;

 private:
  /// One rank: what stands between its device ring and its weights.
  struct Rank {
    std::unique_ptr<Device> device;
    std::unique_ptr<BatchRing> ring;
    std::unique_ptr<Feeder> feeder;  // if feeders fill device slots
    std::unique_ptr<Stager> stager;  // if they fill host slots
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<Collective> collective;
    std::unique_ptr<UpdateStrategy> update;
    std::unique_ptr<Replica> replica;
    Leg leg;
  };
  /// The run at one moment between two legs.
  struct Snapshot {
    Time time{};
    std::uint64_t published = 0, taken = 0;
    double process_cpu_s = 0, staging_cpu_s = 0;
    double reserve() const { return static_cast<double>(published) - static_cast<double>(taken); }
  };

  void make_rank(Rank& rank, const Components& components);
  std::unique_ptr<Feeder> make_feeder(const Components& components, Device& device,
                                      std::int32_t rank, std::size_t slots);
  std::uint64_t published() const;
  Snapshot snapshot();

  void run_replica(std::size_t rank);
  void report(RunListener& listener);
  std::size_t next_leg();
  std::size_t decide_leg();
  std::size_t begin_window();
  bool window_is_draining() const;
  void record_failure(std::exception_ptr failure);
  RunResult collect(bool stopped_from_outside);
  double images_in_window(Time begin, Time end) const;

  Clock& clock_;
  const bool feeds_devices_;
  double outside_reserve_ = 0;
  Probe probe_;
  std::stop_source stop_;
  const Options feeder_options_, update_options_, optimizer_options_;
  const LearningRatePlan learning_rates_;
  std::unique_ptr<Backend> backend_;
  BatchSpec spec_;
  std::vector<Rank> ranks_;
  std::unique_ptr<ThreadsGroup> group_;
  std::unique_ptr<BatchRing> host_ring_;
  std::unique_ptr<Feeder> host_feeder_;

  std::mutex mutex_;
  Gate leg_gate_;
  std::condition_variable logs_changed_;
  // All below under mutex_, until the threads have ended.
  std::size_t waiting_ranks_ = 0, leg_steps_ = 0;
  std::uint64_t legs_begun_ = 0;
  bool warmed_up_ = false;
  int windows_ = 0;
  std::int64_t discarded_steps_ = 0;
  bool data_ended_ = false;
  std::exception_ptr failure_;
  std::optional<Snapshot> window_begin_, window_end_;
  std::vector<std::unique_ptr<StepLog>> logs_;  // one for each window
  bool logs_complete_ = false;
  StepLog* log_ = nullptr;  // of the window under way; null while warming up

  std::vector<std::jthread> stager_threads_, feeder_threads_, replica_threads_;
};

Runner::Wiring::Wiring(const RunConfig& wanted, Clock& clock, const Components& components)
    : config(resolve(wanted, components)),
      clock_(clock),
      feeds_devices_(components.feeder->slots == MemoryKind::device),
      feeder_options_(options_of(config.fake_location, components.feeder->options)),
      update_options_(options_of(config.variable_update, components.update->options)),
      optimizer_options_(options_of(optimizer_text(config), components.optimizer->options)),
      learning_rates_(learning_rate_plan(config, *components.model, kImageNetImages)),
      backend_(
          components.backend->make(options_of(config.device, components.backend->options), clock)),
      spec_(batch_spec(config, *components.model)),
      ranks_(static_cast<std::size_t>(config.num_gpus)) {
  if (config.num_gpus > backend_->device_count()) {
    throw ConfigError(fmt::format("--num-gpus is {}; this machine has {}", config.num_gpus,
                                  backend_->device_count()));
  }
  if (components.feeder->outside_reserve != nullptr) {
    const std::int64_t batches = components.feeder->outside_reserve(feeder_options_);
    outside_reserve_ = static_cast<double>(batches);
  }
  std::vector<Device*> devices;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].device = backend_->open(static_cast<std::int32_t>(rank));
    devices.push_back(ranks_[rank].device.get());
  }
  group_ = std::make_unique<ThreadsGroup>(devices, clock_, stop_.get_token());
  if (!feeds_devices_) {
    const Order order = config.order == "strict" ? Order::strict : Order::relaxed;
    host_ring_ =
        std::make_unique<BatchRing>(spec_, static_cast<std::size_t>(config.prefetch),
                                    *devices.front(), MemoryKind::pinned, devices, order, clock_);
    host_feeder_ = make_feeder(components, *devices.front(), 0, host_ring_->slots());
  }
  for (Rank& rank : ranks_) make_rank(rank, components);
}

void Runner::Wiring::make_rank(Rank& rank, const Components& components) {
  const auto index = static_cast<std::int32_t>(&rank - ranks_.data());
  Device* const device = rank.device.get();
  rank.ring = std::make_unique<BatchRing>(spec_, static_cast<std::size_t>(config.device_slots),
                                          *device, MemoryKind::device, std::span(&device, 1),
                                          Order::relaxed, clock_);
  if (feeds_devices_) {
    rank.feeder = make_feeder(components, *device, index, rank.ring->slots());
  } else {
    rank.stager =
        std::make_unique<Stager>(*host_ring_, static_cast<std::size_t>(index), *rank.ring, *device);
  }
  Graph graph(spec_.image);
  components.model->build(graph, spec_.classes);
  const ExecutableSpec compilation{.batch = spec_,
                                   .precision = parse_precision(config.precision),
                                   .threads = config.compute_threads,
                                   .local_ranks = config.num_gpus,
                                   .seed = config.seed + static_cast<std::uint64_t>(index)};
  rank.executable = backend_->compile(graph, compilation, *device);
  if (index == 0) initialise(*rank.executable, graph, config.seed);
  rank.optimizer =
      backend_->make_optimizer({*components.optimizer, optimizer_options_}, compilation, *device);
  rank.collective = group_->join(index);
  rank.update =
      components.update->make({.collective = *rank.collective,
                               .optimizer = *rank.optimizer,
                               .reduction = parse_gradient_reduction(config.gradient_reduction),
                               .local_ranks = config.num_gpus,
                               .options = update_options_});
  const Replica::Parts parts{*rank.executable, *rank.optimizer, *rank.update,
                             [this](std::int64_t step) {
                               Hyper hyper = hyper_of(config);
                               hyper.learning_rate = learning_rate(learning_rates_, step);
                               hyper.step = step;
                               return hyper;
                             }};
  const Phase phase = config.forward_only ? Phase::forward_only : Phase::train;
  rank.replica = std::make_unique<Replica>(*rank.ring, *device, parts, phase, clock_);
}

std::unique_ptr<Feeder> Runner::Wiring::make_feeder(const Components& components, Device& device,
                                                    std::int32_t rank, std::size_t slots) {
  DataPlan data{.directory = config.data_dir,
                .rank = 0,
                .ranks = 1,
                .order = config.order == "strict" ? Order::strict : Order::relaxed,
                .seed = config.seed,
                .classes = spec_.classes};
  if (feeds_devices_) {
    data.rank = rank;
    data.ranks = config.num_gpus;
  }
  const auto timeout = std::chrono::duration<double>(config.timeout);
  return components.feeder->make(FeederContext{
      .spec = spec_,
      .device = device,
      .clock = clock_,
      .options = feeder_options_,
      .data = std::move(data),
      .probe = probe_,
      .on_bad_sample = parse_bad_sample_policy(config.on_bad_sample),
      .timeout = std::chrono::round<Nanoseconds>(timeout),
      .threads = config.feeder_threads,
      .slots = static_cast<std::int32_t>(slots),
      .seed = config.seed,
  });
}

// ---- threads ----------------------------------------------------------------

void Runner::Wiring::run_replica(std::size_t index) {
  Rank& rank = ranks_[index];
  try {
    rank.replica->start();
    while (const std::size_t steps = next_leg()) {
      StepLog* const log = log_;
      const auto on_step = [log](std::size_t step, const StepTimes& times) {
        if (log != nullptr) log->add(step, times);
      };
      const Replica::Ending ending = rank.replica->run(steps, rank.leg, on_step, stop_.get_token());
      if (ending == Replica::Ending::end_of_data) {
        const std::lock_guard lock(mutex_);
        data_ended_ = true;
      }
      if (ending != Replica::Ending::completed) break;
    }
  } catch (...) {
    record_failure(std::current_exception());
  }
  stop_.request_stop();  // a step is taken by all ranks or by none
}

void Runner::Wiring::record_failure(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  // What ranks throw because the run is being stopped is not a reason of its own.
  if (failure_ == nullptr && !stop_.stop_requested()) failure_ = std::move(failure);
}

std::size_t Runner::Wiring::next_leg() {
  std::unique_lock lock(mutex_);
  const std::uint64_t leg = legs_begun_;
  if (++waiting_ranks_ == ranks_.size()) {
    waiting_ranks_ = 0;
    leg_steps_ = decide_leg();
    ++legs_begun_;
    clock_.wake(leg_gate_);
    return leg_steps_;
  }
  const bool begun =
      clock_.wait(lock, leg_gate_, stop_.get_token(), [&] { return legs_begun_ != leg; });
  return begun ? leg_steps_ : 0;
}

/// Runs on the last rank to arrive, under the lock, with every device idle.
std::size_t Runner::Wiring::decide_leg() {
  if (!warmed_up_) {
    warmed_up_ = true;
    if (config.num_warmup_batches > 0) {
      discarded_steps_ += config.num_warmup_batches;
      return static_cast<std::size_t>(config.num_warmup_batches);
    }
  }
  if (windows_ == 0) return begin_window();
  window_end_ = snapshot();
  log_->close();
  if (config.extend_window && windows_ < kMaxWindows && window_is_draining()) {
    discarded_steps_ += static_cast<std::int64_t>(leg_steps_);
    return begin_window();
  }
  return 0;
}

std::size_t Runner::Wiring::begin_window() {
  ++windows_;
  window_end_.reset();
  window_begin_ = snapshot();
  std::size_t steps = static_cast<std::size_t>(config.num_batches);
  if (config.extend_window) {
    const double reserve = window_begin_->reserve() + outside_reserve_;
    const double batches = kMinReserves * std::max(0.0, reserve);
    const auto needed = static_cast<std::size_t>(batches / static_cast<double>(ranks_.size())) + 1;
    steps = std::max(steps, needed);
  }
  logs_.push_back(std::make_unique<StepLog>(steps, ranks_.size()));
  log_ = logs_.back().get();
  logs_changed_.notify_all();
  return steps;
}

void Runner::Wiring::report(RunListener& listener) {
  for (std::size_t index = 0;; ++index) {
    const StepLog* log = nullptr;
    {
      std::unique_lock lock(mutex_);
      logs_changed_.wait(lock, [&] { return logs_.size() > index || logs_complete_; });
      if (logs_.size() <= index) return;
      log = logs_[index].get();
    }
    listener.window_begins();
    StepLog::Step step;
    Nanoseconds before{};
    for (std::size_t count = 0; log->wait(count, step); ++count) {
      const double images = std::max(1.0, static_cast<double>(step.images));
      const bool decays = config.loss_type_to_report == "total_loss";
      listener.step(
          {.index = count,
           .seconds = seconds(step.completion - before),
           .loss = step.loss_sum / static_cast<double>(log->ranks()) + (decays ? step.l2_loss : 0),
           .top1 = static_cast<double>(step.top1) / images,
           .top5 = static_cast<double>(step.top5) / images});
      before = step.completion;
    }
  }
}

RunResult Runner::Wiring::run(RunListener& listener, std::stop_token external) {
  const std::string started = utc_now();
  const std::stop_callback forward(external, [this] { stop_.request_stop(); });
  listener.warm_up_begins();
  std::jthread reporter([&] { report(listener); });

  std::vector<Clock::Participant> participants;  // all are there before any thread starts
  const std::size_t feeders = feeds_devices_ ? ranks_.size() : 1;
  const std::size_t stagers = feeds_devices_ ? 0 : ranks_.size();
  for (std::size_t i = 0; i < ranks_.size() + feeders + stagers; ++i)
    participants.emplace_back(clock_);
  const auto start = [&](std::vector<std::jthread>& threads, auto body) {
    threads.emplace_back(
        [body, participant = std::move(participants.back())]() mutable { body(); });
    participants.pop_back();
  };
  {
    // Stagers' CPU clocks are read by replicas between legs, which may not happen before all are
    // here.
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      if (feeds_devices_) {
        start(feeder_threads_,
              [this, &rank] { run_to_end(*rank.feeder, *rank.ring, stop_.get_token()); });
      } else {
        start(stager_threads_, [this, &rank] { rank.stager->run(stop_.get_token()); });
      }
    }
    if (!feeds_devices_) {
      start(feeder_threads_, [this] { run_to_end(*host_feeder_, *host_ring_, stop_.get_token()); });
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      start(replica_threads_, [this, i] { run_replica(i); });
    }
  }
  for (std::jthread& thread : replica_threads_) thread.join();
  const bool stopped_from_outside = external.stop_requested() && !window_end_.has_value();
  if (window_begin_ && !window_end_) window_end_ = snapshot();
  stop_.request_stop();
  for (auto* threads : {&stager_threads_, &feeder_threads_}) {
    for (std::jthread& thread : *threads) thread.join();
  }
  {
    const std::lock_guard lock(mutex_);
    logs_complete_ = true;
    if (log_ != nullptr) log_->close();
    logs_changed_.notify_all();
  }
  reporter.join();
  RunResult result = collect(stopped_from_outside);
  result.started = started;
  return result;
}

// ---- results ----------------------------------------------------------------

std::uint64_t Runner::Wiring::published() const {
  if (host_ring_) return host_ring_->stats().published;
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks_) sum += rank.ring->stats().published;
  return sum;
}

Runner::Wiring::Snapshot Runner::Wiring::snapshot() {
  Snapshot now{.time = clock_.now(), .published = published()};
  for (const Rank& rank : ranks_) {
    const RingStats ring = rank.ring->stats();
    now.taken += ring.published - ring.filled_slots;
  }
  now.process_cpu_s = process_cpu_seconds();
  for (std::jthread& thread : stager_threads_) now.staging_cpu_s += thread_cpu_seconds(thread);
  return now;
}

bool Runner::Wiring::window_is_draining() const {
  return is_draining(window_begin_->reserve() + outside_reserve_,
                     window_end_->reserve() + outside_reserve_,
                     static_cast<double>(window_end_->taken - window_begin_->taken));
}

double Runner::Wiring::images_in_window(Time begin, Time end) const {
  double images = 0;
  for (const Rank& rank : ranks_) {
    Time before = rank.leg.begin;
    for (const StepTimes& step : rank.leg.steps) {
      // A step that lies across an edge of the window counts by the part inside.
      const Time done = rank.leg.begin + step.completion;
      const double inside = seconds(std::min(done, end) - std::max(before, begin));
      if (done > before && inside > 0)
        images += step.result.images * inside / seconds(done - before);
      before = done;
    }
  }
  return images;
}

RunResult Runner::Wiring::collect(bool stopped_from_outside) {
  RunResult result;
  result.config = config;
  result.images_per_step = std::int64_t{config.batch_size} * config.num_gpus;
  result.facts = backend_->facts();
  result.counters = probe_.values();
  result.notes = probe_.notes();
  result.discarded_steps = discarded_steps_;
  if (window_begin_) {
    Nanoseconds before{};
    for (const StepLog::Step& step : log_->ready()) {
      result.step_ms.push_back(milliseconds(step.completion - before));
      result.input_wait_ms.push_back(milliseconds(step.input_wait));
      before = step.completion;
    }
    Time begin = Time::min(), end = Time::max();
    for (const Rank& rank : ranks_) {
      begin = std::max(begin, rank.leg.begin);
      end =
          std::min(end, rank.leg.steps.empty() ? rank.leg.begin
                                               : rank.leg.begin + rank.leg.steps.back().completion);
    }
    const Snapshot &first = *window_begin_, &last = *window_end_;
    result.window_s = std::max(0.0, seconds(end - begin));
    if (result.window_s > 0) result.img_per_s = images_in_window(begin, end) / result.window_s;
    if (last.time > first.time) {
      result.sustained_img_per_s = static_cast<double>(last.published - first.published) *
                                   config.batch_size / seconds(last.time - first.time);
    }
    result.reserve_start = first.reserve() + outside_reserve_;
    result.reserve_end = last.reserve() + outside_reserve_;
    result.process_cpu_s = last.process_cpu_s - first.process_cpu_s;
    result.staging_cpu_s = last.staging_cpu_s - first.staging_cpu_s;
  }
  const std::size_t wanted = leg_steps_;
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
    result.reason = fmt::format("stopped after {} steps of the window", result.step_ms.size());
    result.exit_code = 130;
  } else if (data_ended_ && result.step_ms.size() < wanted) {
    result.status = Status::partial;
    result.reason =
        fmt::format("the feeder's data ended after {} of {} steps", result.step_ms.size(), wanted);
    result.exit_code = 6;
  } else if (window_is_draining()) {
    result.status = Status::draining;
    result.reason = fmt::format(
        "{:.0f} batches lay ready when the window began and {:.0f} at its end; measure at least "
        "{:.0f} "
        "steps, or let --extend-window do it",
        result.reserve_start, result.reserve_end,
        kMinReserves * result.reserve_start / config.num_gpus + 1);
  }
  return result;
}

// ---- Runner -----------------------------------------------------------------

Runner::Runner(const RunConfig& config, Clock& clock)
    : Runner(config, clock, find_components(config)) {}
Runner::Runner(const RunConfig& config, Clock& clock, const Components& components)
    : wiring_(std::make_unique<Wiring>(config, clock, components)) {}
Runner::~Runner() = default;

const RunConfig& Runner::config() const noexcept { return wiring_->config; }

RunResult Runner::run(RunListener& listener, std::stop_token stop) {
  return wiring_->run(listener, std::move(stop));
}

}  // namespace penstock
