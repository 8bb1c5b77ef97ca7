// SPDX-License-Identifier: Apache-2.0
// What a run measured, as records keep it. Plain values. fields.h lists them for JSON and CSV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config/run_config.h"
#include "dataflow/probe.h"
#include "trainer/metrics.h"

namespace penstock {

/// How a run ended, as reports spell it.
enum class Status : std::uint8_t { ok, skipped, failed, partial, draining };
std::string_view to_string(Status status);
std::string_view to_string(StageRole role);

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
  StageRole role = StageRole::other;
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

/// One of several processes, in the time from its begin to its own end.
struct RankResult {
  std::int32_t rank = 0;
  std::string host{};
  double img_per_s = 0, window_s = 0;
  /// Over its steps: from the request for a batch until it was there; how long a device had nothing
  /// to do because it was not. Of several devices the one that waited longest. Without a name: not
  /// known.
  PartTimes batch_ready{}, exposed_wait{};
  double last_percent = 0;  ///< of the steps: its batch came last, and others waited for it
  double batch_ms = 0;  ///< the busiest workers of its feeder work so long for a batch; 0: unknown
};

/// Whose input makes the other ranks wait.
enum class Culprit : std::uint8_t { none, rank, host, moving, undecided };
std::string_view to_string(Culprit culprit);

/// How unevenly ranks get their batches (bench/record/rank_skew.h).
struct RankSkew {
  Culprit culprit = Culprit::none;
  std::int64_t rank = -1;      ///< the culprit, if it is a rank
  std::string host{};          ///< the culprit's
  double decided_percent = 0;  ///< of the steps: at least one rank waited for another's batch
  double culprit_percent = 0;  ///< of those: the culprit's batch came last
  /// How much each step takes longer because of the culprit, with its 99 % interval.
  double delay_ms = 0, delay_low_ms = 0, delay_high_ms = 0;
  double delay_percent = 0;  ///< the same, of the mean step
  /// How much longer the culprit works for a batch than any other rank; 0: not known.
  double more_work_ms = 0;
  PartTimes spread{};  ///< over the steps: the longest wait less the shortest
};

/// The steps of the ranks of a run, which are threads or processes (bench/analysis/rank_steps.h).
struct RankSteps {
  std::vector<std::vector<Leg>> legs;  ///< by leg of the window, then by rank
  /// Ranks that wait for each other in a step: this many consecutive ones; 0: all of them.
  std::size_t together = 0;
  std::uint64_t machine = 0;  ///< names the one whose clock the times are of; see join_steps
  bool exchanges = false;     ///< StepTimes::exchange was measured
};

struct RunResult {
  RunConfig config;  ///< resolved: without automatic values
  Status status = Status::ok;
  std::string reason;   ///< a sentence, if the status is not ok
  int exit_code = 0;    ///< see bench/record/exit_code.h
  std::string started;  ///< UTC, ISO 8601

  std::string unit = "img";  ///< what a sample of a batch is called: "img" or "samples"
  double img_per_s = 0;      ///< samples of all ranks in the window / its length; see rank_steps.h
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
  std::optional<RankSkew> rank_skew;          ///< if its processes step together
  std::vector<BucketUse> buckets;             ///< in order of exchange
  std::vector<EvaluationReport> evaluations;  ///< complete ones
  std::map<std::string, double> facts;        ///< about device and data; names contain units
  std::map<std::string, std::int64_t> counters;
  std::vector<std::string> notes;
  double process_cpu_s = 0, staging_cpu_s = 0;  ///< CPU time spent in the window
  RankSteps rank_steps;                         ///< of this process; not in records
};

/// A fact of the run; none: the run does not have it.
std::optional<double> fact_of(const RunResult& result, const std::string& name);

}  // namespace penstock
