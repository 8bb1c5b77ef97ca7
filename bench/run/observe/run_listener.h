// SPDX-License-Identifier: Apache-2.0
// What observers see of a run while it lasts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/record/run_result.h"

namespace penstock {

/// One step of the window, over all ranks.
struct StepReport {
  std::size_t index = 0;      ///< from 0
  double seconds = 0;         ///< from the previous step's end to this one's, on the slowest rank
  double loss = 0;            ///< as chosen by --loss-type-to-report
  double top1 = 0, top5 = 0;  ///< shares of the step's images
  double images = 0;          ///< of all ranks
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

}  // namespace penstock
