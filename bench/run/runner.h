// SPDX-License-Identifier: Apache-2.0
// One run, from a configuration to a result. run_parts.h connects feeder, rings, stagers and
// replicas; run_session.h runs them. A sweep calls this in a child process for every repetition.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/run/rank_steps.h"
#include "dataflow/batch.h"
#include "dataflow/clock.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock::cluster {

class Processes;
class ServerConnection;
}  // namespace penstock::cluster

namespace penstock {

class Trace;

/// How a run ended, as reports spell it.
enum class Status : std::uint8_t { ok, skipped, failed, partial, draining };
std::string_view to_string(Status status);

/// One pass over the evaluation set.
struct EvaluationReport {
  std::int64_t step = 0;      ///< training steps before it
  std::int64_t images = 0;    ///< evaluated images
  double top1 = 0, top5 = 0;  ///< shares of images whose label has the highest logit, or one of the
                              ///< five highest
  double seconds = 0;
  bool complete = false;  ///< false: stopped or failed; the figures are then meaningless
};

/// The work of one stage between source and device in the window. Times come from the workers'
/// clocks and are scaled from the timed items to all items.
struct StageUse {
  std::string name;     ///< "read", "decode", "receive", "unpack", "draw", "copy"
  std::string workers;  ///< what runs it; stages with the same workers share their time
  std::int32_t threads =
      1;                    ///< threads that may run it at once; the largest number is the workers'
  std::int64_t images = 0;  ///< images that passed the stage
  std::int64_t items = 0, timed_items = 0;  ///< images or batches, as the stage processes them
  double cpu_s = 0, wall_s = 0;  ///< of work; copies: the stager's CPU, the device's time
  double wait_in_s = 0;          ///< waited for input from upstream
  double wait_out_s = 0;         ///< waited for free slots downstream
  std::int64_t bytes = 0;        ///< input of the stage
};

/// A ring during the window.
struct QueueUse {
  std::string name;  ///< "host ring", "device ring 0"
  std::int32_t slots = 0;
  double mean_filled = 0;                      ///< ready batches, averaged over time
  double empty_percent = 0, full_percent = 0;  ///< of the window: none ready; no slot free
  double producer_wait_s = 0, consumer_wait_s = 0;
  /// Mean number of ready batches in equal parts of the window, at most 200 parts.
  std::vector<double> filled;
};

/// A type of operation of a step, over the traced steps.
struct OperationUse {
  std::string name;  ///< "conv2d forward", or a kernel's name
  double calls_per_step = 0;
  double ms_per_step = 0;  ///< mean over steps and ranks
  double percent = 0;      ///< of the time of a step on its device
};

/// Memory in use during the window.
struct MemoryUse {
  std::string name;  ///< "process", "machine", "page cache", "device 0"
  double peak_mib = 0;
  /// Means over equal parts of the window, at most 200 parts.
  std::vector<double> mib;
};

/// One of several processes, in the time from its begin to its own end.
struct RankResult {
  std::string host;
  double img_per_s = 0, window_s = 0;
};

/// A bucket of gradients that is exchanged during backward: means over steps and ranks.
struct BucketUse {
  double mib = 0;
  double lead_ms = 0;      ///< from the completion of the bucket to the end of backward
  double exchange_ms = 0;  ///< of this bucket, without waiting for earlier buckets
};

/// How long one part of a step took, over steps, in milliseconds.
struct PartTimes {
  std::string name;  ///< "step", "starved", "copy_exposed", "late", "exchange_exposed", "compute"
  double p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

struct RunResult {
  RunConfig config;  ///< resolved: without automatic values
  Status status = Status::ok;
  std::string reason;   ///< a sentence, if the status is not ok
  int exit_code = 0;    ///< see bench/record/exit_code.h
  std::string started;  ///< UTC, ISO 8601

  double img_per_s = 0;  ///< images of all ranks in the window / its length; see rank_steps.h
  double sustained_img_per_s = 0;  ///< images that the feeder published in the window / its length
  double window_s = 0;
  double reserve_start = 0,
         reserve_end = 0;                      ///< batches ready at either end of the window
  std::int64_t discarded_steps = 0;            ///< warm-up steps, and windows that were repeated
  std::int64_t images_per_step = 0;            ///< of all ranks
  double examples_per_epoch = 0;               ///< see Runner::examples_per_epoch; 0: unknown
  std::vector<double> step_ms, input_wait_ms;  ///< one per step of the window
  std::vector<double> device_idle_ms;          ///< before each step, see rank_steps.h
  double device_idle_percent = 0;              ///< of the window
  /// The parts of device_idle_ms, per step: no batch was ready on the host; a ready batch was being
  /// copied; the host enqueued the step late.
  std::vector<double> starved_ms, copy_exposed_ms, late_ms;
  /// Per step: from the end of backward, on the rank that started last, to the end of the step on
  /// the last rank. Empty if it was not measured.
  std::vector<double> exchange_exposed_ms;
  /// The steps, from 0, whose batch a loader yields first in a later epoch.
  std::vector<std::int64_t> epoch_begins;
  std::vector<PartTimes> parts;  ///< see bench/record/step_parts.h
  std::vector<StageUse> stages;  ///< upstream first
  std::vector<QueueUse> queues;  ///< upstream first
  /// By type, the longest first, if --trace-file or --profile-file asked for them.
  std::vector<OperationUse> operations;
  std::vector<MemoryUse> memory;              ///< of the host, then of each device
  double instrumentation_s = 0;               ///< estimated CPU time spent on timing the stages
  std::vector<double> losses;                 ///< one per step, as chosen by --loss-type-to-report
  std::vector<RankResult> ranks;              ///< by rank, if the run has several processes
  std::vector<BucketUse> buckets;             ///< in order of exchange
  std::vector<EvaluationReport> evaluations;  ///< complete ones
  std::map<std::string, double> facts;        ///< about device and data; names contain units
  std::map<std::string, std::int64_t> counters;
  std::vector<std::string> notes;
  double process_cpu_s = 0, staging_cpu_s = 0;  ///< CPU time spent in the window
  RankSteps rank_steps;                         ///< of this process; not in records
};

/// One step of the window, over all ranks.
struct StepReport {
  std::size_t index = 0;      ///< from 0
  double seconds = 0;         ///< from the previous step's end to this one's, on the slowest rank
  double loss = 0;            ///< as chosen by --loss-type-to-report
  double top1 = 0, top5 = 0;  ///< shares of the step's images
};

/// Receives progress on a thread that is not measured.
class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual void warm_up_begins() {}
  /// Called before window_begins if the window has more steps than requested.
  virtual void window_extended(std::int64_t /*steps*/) {}
  virtual void window_begins() {}
  virtual void step(const StepReport&) {}
  virtual void evaluation_begins(std::int64_t /*training_step*/) {}
  /// `images` more images were evaluated in `seconds`; `index` counts from 0.
  virtual void evaluation_step(std::size_t /*index*/, double /*images*/, double /*seconds*/) {}
  virtual void evaluated(const EvaluationReport&) {}
};

/// A ring at a moment of the run.
struct QueueGauge {
  std::string name;  ///< as in QueueUse
  std::int32_t slots = 0;
  std::uint64_t filled = 0;                         ///< ready batches
  double producer_wait_s = 0, consumer_wait_s = 0;  ///< so far
};

class Runner {
 public:
  /// Resolves the configuration and opens everything that may be missing: data, sockets, devices.
  /// Throws ConfigError, Unavailable, TimeoutError. `clock` must outlive the runner.
  Runner(const RunConfig& config, Clock& clock);
  /// The components of a run, which need not be in the tables.
  struct Components {
    const FeederEntry* feeder = nullptr;
    const ModelEntry* model = nullptr;
    const BackendEntry* backend = nullptr;
    const UpdateEntry* update = nullptr;
    const OptimizerEntry* optimizer = nullptr;
    cluster::Processes* processes = nullptr;  ///< must outlive the run; null: one process
    /// Connection to parameter servers in other processes; must outlive the run. Null: none.
    cluster::ServerConnection* servers = nullptr;
    std::shared_ptr<StartedSource> started{};  ///< by adopt_batches, for the run's feeder; or null
  };
  /// `trace` records the first steps of the window; it is null or must outlive the runner. A stop
  /// request ends the compilation of the model with an Error.
  Runner(const RunConfig& config, Clock& clock, const Components& components,
         Trace* trace = nullptr, std::stop_token stop = {});
  ~Runner();

  const RunConfig& config() const noexcept;
  /// Training examples in an epoch: of the data, or ImageNet's if the feeder does not know.
  double examples_per_epoch() const noexcept;

  /// The current state of its rings, upstream first. Callable from any thread, also during the run.
  std::vector<QueueGauge> queues() const;

  /// Call once. A failure during the run is in the result, not thrown; earlier measurements are
  /// kept.
  RunResult run(RunListener& listener, std::stop_token stop);

 private:
  class Wiring;
  std::unique_ptr<Wiring> wiring_;
};

/// Finds the components that a configuration names. Throws ConfigError or Unavailable.
Runner::Components find_components(const RunConfig& config);

/// If the feeder's batches come from a source that decides their shape, asks the source, and states
/// the shape in --batch-size, --image-size and the feeder's options. Otherwise returns `config`
/// unchanged. Leaves the source in `components`, whose run takes it over. Throws ConfigError, also
/// if a typed size differs; what the source throws.
RunConfig adopt_batches(RunConfig config, Runner::Components& components,
                        const std::stop_token& stop);
/// As adopt_batches(), where runs follow that start sources themselves.
RunConfig state_batches(RunConfig config, Runner::Components components,
                        const std::stop_token& stop);
/// The same for all rows of a sweep, which then train on batches of one size. Rows that cannot run
/// here stay unchanged.
void state_batches(std::span<RunConfig> rows, const std::stop_token& stop);

/// Replaces automatic values of `config` by actual ones.
RunConfig resolve(RunConfig config, const Runner::Components& components);

/// The options of a component: the typed ones, and defaults from its table for the others.
Options options_of(std::string_view text, std::span<const OptionSpec> specs);

}  // namespace penstock
