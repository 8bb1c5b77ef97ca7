// SPDX-License-Identifier: Apache-2.0
// What `penstock isolate` finds out: what one feeder costs one trainer, where the cost arises, what
// would remove it, and how sure all that is. Every report of it is a view of this and of the sweep
// of runs behind it. Times per step are of all devices together, as in step tables.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/isolate/delivery_finding.h"
#include "bench/statistics/estimate.h"
#include "bench/statistics/input_cost.h"
#include "bench/statistics/scaling_law.h"
#include "bench/sweep_result.h"

namespace penstock {

/// What a row of the sweep is measured for.
enum class Rung : unsigned char { ceiling, coupled, supply, step };

/// The marginal cost of a feeder: what its steps take more than the ceiling's, in ms a step.
/// starvation + transfer + interference + residual = total, by construction of the residual.
struct CostSplit {
  Estimate total_ms;
  Estimate starvation_ms;    ///< the device had no batch: none was ready on the host's side
  Estimate transfer_ms;      ///< the device waited for the copy of a batch that was ready
  Estimate interference_ms;  ///< steps themselves got longer, or were enqueued late
  double residual_ms = 0;    ///< what the three do not explain
};

/// One feeder against the ceiling; rounds are blocks.
struct InputCostFinding : CostEstimate {
  Estimate ceiling_img_per_s, coupled_img_per_s;
  CostSplit split;
};

/// One stage of the way from source to device, over all coupled runs.
struct StageFinding {
  std::string name;     ///< "decode", "receive"
  std::string workers;  ///< what runs it: "decode threads", "receiver", "stager", "producer"
  double capacity_img_per_s = 0;   ///< if nothing else held it up; 0: not known
  double utilisation_percent = 0;  ///< of its workers' time, working
  /// Its workers at work on all their stages, or the fewer of them that may run this one at once at
  /// work on it, whichever is more.
  double busy_percent = 0;
  double waits_in_percent = 0;   ///< of its workers' time: nothing came from upstream
  double waits_out_percent = 0;  ///< of its workers' time: no room downstream
  double cpu_us_per_image = 0, wall_us_per_image = 0, bytes_per_image = 0;
  /// Waiting for storage: what is left of wall time without computing and without waiting for a
  /// core. None: not known, the kernel does not say how long threads waited for a core.
  std::optional<double> storage_us_per_image{};
};

/// One more or one less of something, and what the replay expects of it.
struct Prediction {
  std::string change;  ///< "--feeder-threads 2"; empty: as measured
  double img_per_s = 0;
};

struct Verification {
  std::string change;  ///< the flags that were changed
  double predicted_img_per_s = 0;
  Estimate achieved_img_per_s;
  double error_percent = 0;  ///< 100 (predicted / achieved - 1)
  bool agrees = false;       ///< within 10 %, or the interval; never where that is wide
};

/// One rung of the ladder.
struct RungFinding {
  std::string name;                          ///< "decode, centre crop"
  std::string adds;                          ///< "JPEG decoding of whole images"
  std::size_t row = 0;                       ///< of the sweep, coupled to the trainer
  std::optional<InputCostFinding> cost;      ///< against the ceiling
  std::optional<Estimate> added_ms;          ///< against the rung before; may be negative
  std::optional<Estimate> supply_img_per_s;  ///< unconsumed
  std::string unavailable;                   ///< why it could not be measured
  bool branch = false;                       ///< compared with the ceiling only (ZeroMQ)
  std::string part;  ///< whose share it bounds: "consumer", "network", "producer"; empty: nobody's
  bool own_producer = false;  ///< the ladder's, on this machine: no wire is in it
};

/// What happened around a block that numbers may suffer from.
struct BlockNoise {
  std::size_t block = 0;     ///< from 0
  double steal_percent = 0;  ///< of processor time: the hypervisor ran others
  std::optional<double> cpu_pressure_percent, io_pressure_percent;  ///< PSI, "some"
  double foreign_cpu_percent = 0;           ///< of all cores: other processes of this machine
  std::optional<double> mhz_low, mhz_high;  ///< of the cores, where the kernel tells
  bool throttled = false;                   ///< by a cgroup's quota, or by heat
  bool noisy() const noexcept;              ///< any of them beyond what a quiet machine shows
};

struct Isolation {
  SweepResult sweep;  ///< every run, with its steps
  std::size_t ceiling_row = 0, coupled_row = 0;
  std::optional<std::size_t> supply_row;
  std::size_t blocks = 0;           ///< in which both the ceiling and the feeder ended well
  std::size_t measured_blocks = 0;  ///< in which every row ran; the first rounds of the sweep
  std::string stopped_because;      ///< "the interval is within 1 %", "the budget of 45 s ended"
  std::vector<BlockNoise> noise;
  std::vector<std::string> doubts;  ///< why the figures may mislead, and what to do; empty: none

  std::optional<InputCostFinding> cost;
  std::optional<Estimate> supply_img_per_s;
  std::optional<DeliveryFinding> delivery;  ///< of a feeder that receives from other processes
  std::vector<StageFinding> stages;         ///< upstream first
  std::optional<std::size_t> bottleneck, next_bottleneck;  ///< indices of stages; none: the trainer
  double gain_until_next = 1;              ///< factor in rate if the bottleneck cost nothing
  std::vector<ScalingPoint> supply_curve;  ///< threads and their unconsumed rates
  std::optional<ScalingLaw> law;
  std::optional<ThreadsNeeded> cores_per_device;
  std::vector<Prediction> depths;    ///< by queue replay, slots ascending
  std::vector<std::string> verdict;  ///< the answer in sentences, the first is the headline
  std::vector<std::string> cures;    ///< what would help, best first
  std::optional<Verification> verification;
  std::vector<RungFinding> ladder;     ///< empty unless asked for
  double instrumentation_percent = 0;  ///< of CPU time in stages, spent on timing them
};

/// Of the blocks that figures come from, without those of a ladder or a verification.
std::vector<BlockNoise> noise_of_blocks(const Isolation& found);

}  // namespace penstock
