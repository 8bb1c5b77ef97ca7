// SPDX-License-Identifier: Apache-2.0
// One run, from a configuration to a result: run_parts.h wires feeder, rings, stagers and replicas,
// run_session.h runs them. A sweep runs it in a child process for every repetition.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/run_config.h"
#include "dataflow/batch.h"
#include "dataflow/clock.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock {

class Processes;
class ServerConnection;
class Trace;

/// How a run ended, as rows and files spell it.
enum class Status : std::uint8_t { ok, skipped, failed, partial, draining };
std::string_view to_string(Status status);

/// One pass over the evaluation set.
struct EvaluationReport {
  std::int64_t step = 0;      ///< training steps before it
  std::int64_t images = 0;    ///< evaluated
  double top1 = 0, top5 = 0;  ///< shares of them whose label has the highest, or one of the five
                              ///< highest logits
  double seconds = 0;
  bool complete = false;  ///< false: stopped, or failed; then its figures say nothing
};

/// What one stage of the way from source to device did in the window. Times are of its workers'
/// clocks, scaled up from those items that were timed.
struct StageUse {
  std::string name;     ///< "read", "decode", "receive", "unpack", "draw", "copy"
  std::string workers;  ///< what runs it; stages of the same workers share their time
  std::int32_t threads =
      1;                    ///< of them, that may run it at once; their most is the workers' number
  std::int64_t images = 0;  ///< that passed it
  std::int64_t items = 0, timed_items = 0;  ///< images or batches, whatever it takes at once
  double cpu_s = 0, wall_s = 0;  ///< working; of copies: the stager's CPU, the device's time
  double wait_in_s = 0;          ///< nothing came from upstream
  double wait_out_s = 0;         ///< no room downstream
  std::int64_t bytes = 0;        ///< that it took in
};

/// A ring in the window.
struct QueueUse {
  std::string name;  ///< "host ring", "device ring 0"
  std::int32_t slots = 0;
  double mean_filled = 0;                      ///< batches ready in it, integrated over time
  double empty_percent = 0, full_percent = 0;  ///< of the window: none ready; no slot free
  double producer_wait_s = 0, consumer_wait_s = 0;
  /// Mean batches ready in equal parts of the window, at most 200 of them.
  std::vector<double> filled;
};

/// One of several processes, in its own window.
struct RankResult {
  std::string host;
  double img_per_s = 0, window_s = 0;
};

/// A bucket of gradients that is exchanged while backward goes on: means over steps and ranks.
struct BucketUse {
  double mib = 0;
  double lead_ms = 0;      ///< from the moment when it was complete to the end of backward
  double exchange_ms = 0;  ///< its own, without what it waited for the buckets before it
};

struct RunResult {
  RunConfig config;  ///< resolved: no automatic values are left in it
  Status status = Status::ok;
  std::string reason;   ///< why, in a sentence, where the status is not ok
  int exit_code = 0;    ///< of the table that all verbs share
  std::string started;  ///< UTC, ISO 8601

  double img_per_s = 0;  ///< images of all ranks in the window / its length, of processes the
                         ///< longest of theirs
  double sustained_img_per_s = 0;  ///< images that the feeder published in the window / its length
  double window_s = 0;
  double reserve_start = 0,
         reserve_end = 0;            ///< batches that lay ready, at either end of the window
  std::int64_t discarded_steps = 0;  ///< warm-up and windows that were measured again
  std::int64_t images_per_step = 0;  ///< of all ranks
  double examples_per_epoch = 0;     ///< see Runner::examples_per_epoch; 0: not known
  std::vector<double> step_ms, input_wait_ms;  ///< one for each step of the window
  std::vector<double> device_idle_ms;  ///< before each: from the last rank's end to its start
  double device_idle_percent = 0;      ///< of the time from the first step's end to the last's
  /// What device_idle_ms consists of, step by step: no batch was ready on the host's side; the copy
  /// of a batch that was; the host was late to enqueue the step.
  std::vector<double> starved_ms, copy_exposed_ms, late_ms;
  std::vector<StageUse> stages;    ///< upstream first
  std::vector<QueueUse> queues;    ///< upstream first
  double instrumentation_s = 0;    ///< CPU time that timing the stages took, by its own calibration
  std::vector<double> losses;      ///< the same, as --loss-type-to-report wants them
  std::vector<RankResult> ranks;   ///< by rank, where they are processes
  std::vector<BucketUse> buckets;  ///< in the order of their exchange
  std::vector<EvaluationReport> evaluations;  ///< complete ones
  std::map<std::string, double> facts;        ///< of device and data, with units in the names
  std::map<std::string, std::int64_t> counters;
  std::vector<std::string> notes;
  double process_cpu_s = 0, staging_cpu_s = 0;  ///< CPU time spent in the window
};

/// One step of the window, over all ranks.
struct StepReport {
  std::size_t index = 0;      ///< from 0
  double seconds = 0;         ///< since the step before ended on the slowest rank
  double loss = 0;            ///< as --loss-type-to-report wants it
  double top1 = 0, top5 = 0;  ///< shares of the step's images
};

/// Told of progress from a thread that is not measured.
class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual void warm_up_begins() {}
  /// Before window_begins, of a window that takes more steps than were asked for.
  virtual void window_extended(std::int64_t /*steps*/) {}
  virtual void window_begins() {}
  virtual void step(const StepReport&) {}
  virtual void evaluation_begins(std::int64_t /*training_step*/) {}
  /// `images` more were evaluated in `seconds`; `index` counts from 0.
  virtual void evaluation_step(std::size_t /*index*/, double /*images*/, double /*seconds*/) {}
  virtual void evaluated(const EvaluationReport&) {}
};

/// A ring while a run goes on.
struct QueueGauge {
  std::string name;  ///< as in QueueUse
  std::int32_t slots = 0;
  std::uint64_t filled = 0;                         ///< batches ready in it
  double producer_wait_s = 0, consumer_wait_s = 0;  ///< so far
};

class Runner {
 public:
  /// Resolves the configuration and opens everything that can be missing: data, sockets, devices.
  /// Throws ConfigError, Unavailable, TimeoutError. `clock` outlives the runner.
  Runner(const RunConfig& config, Clock& clock);
  /// The same with components that need not be in the tables.
  struct Components {
    const FeederEntry* feeder = nullptr;
    const ModelEntry* model = nullptr;
    const BackendEntry* backend = nullptr;
    const UpdateEntry* update = nullptr;
    const OptimizerEntry* optimizer = nullptr;
    Processes* processes = nullptr;  ///< those of the run, outliving it; null: this one alone
    /// To parameter servers that are processes, outliving the run; null: there are none.
    ServerConnection* servers = nullptr;
  };
  /// `trace` is null, or outlives the runner and gets the first steps of the window. A stop request
  /// ends the compilation of the model with an Error.
  Runner(const RunConfig& config, Clock& clock, const Components& components,
         Trace* trace = nullptr, std::stop_token stop = {});
  ~Runner();

  const RunConfig& config() const noexcept;
  /// Training examples in an epoch: the data's, or ImageNet's where the feeder knows none.
  double examples_per_epoch() const noexcept;

  /// Its rings, upstream first, as they are now. From any thread, also while it runs.
  std::vector<QueueGauge> queues() const;

  /// Runs once. A failure on the way is in the result, not thrown; what was measured before it is
  /// kept.
  RunResult run(RunListener& listener, std::stop_token stop);

 private:
  class Wiring;
  std::unique_ptr<Wiring> wiring_;
};

/// Finds the components that a configuration names. Throws ConfigError or Unavailable.
Runner::Components find_components(const RunConfig& config);

/// `config` without automatic values.
RunConfig resolve(RunConfig config, const Runner::Components& components);

/// The options of a component: what the user typed behind its name, over its table's defaults.
Options options_of(std::string_view text, std::span<const OptionSpec> specs);

}  // namespace penstock
