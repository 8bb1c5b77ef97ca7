// SPDX-License-Identifier: Apache-2.0
// Passes finished steps from the replicas to the thread that reports them. A step is ready when
// every rank has finished it. Nothing is allocated after construction.
//
// Thread-safety: add from any replica's thread; wait and close from others.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

#include "trainer/metrics.h"

namespace penstock {

class StepLog {
 public:
  /// One step, over all ranks of the process.
  struct Step {
    Nanoseconds start{};              ///< when the last rank started it, since the leg began
    Nanoseconds offered{}, copied{};  ///< for that rank's batch, see StepTimes
    Nanoseconds completion{};         ///< when the last rank completed it, since the leg began
    Nanoseconds input_wait{};         ///< of the rank with the longest wait
    std::int64_t images = 0;          ///< over all ranks
    double loss_sum = 0;              ///< over all ranks
    double l2_loss = 0;               ///< the same on every rank that knows it
    std::int64_t top1 = 0, top5 = 0;  ///< images, over all ranks
    bool finite = true;
    std::size_t ranks_done = 0;
  };

  StepLog(std::size_t steps, std::size_t ranks) : ranks_(ranks), steps_(steps) {}

  void add(std::size_t index, const StepTimes& times) {
    const std::lock_guard lock(mutex_);
    if (index >= steps_.size()) return;
    Step& step = steps_[index];
    if (step.ranks_done == 0 || times.start > step.start) {
      step.start = times.start;
      step.offered = times.offered;
      step.copied = times.copied;
    }
    step.completion = std::max(step.completion, times.completion);
    step.input_wait = std::max(step.input_wait, times.input_wait);
    step.images += times.result.images;
    step.loss_sum += times.result.loss;
    step.l2_loss = std::max(step.l2_loss, double{times.result.l2_loss});
    step.top1 += times.result.top1;
    step.top5 += times.result.top5;
    step.finite = step.finite && times.result.finite;
    if (++step.ranks_done == ranks_) {
      ++ready_;  // ranks finish their steps in order, so steps become ready in order
      changed_.notify_all();
    }
  }

  /// Blocks until step `index` is ready (true) or will never be (false).
  bool wait(std::size_t index, Step& step) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_ > index || closed_; });
    if (ready_ <= index) return false;
    step = steps_[index];
    return true;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  /// The steps that every rank has finished.
  std::vector<Step> ready() const {
    const std::lock_guard lock(mutex_);
    return {steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(ready_)};
  }

  std::size_t ranks() const noexcept { return ranks_; }

 private:
  const std::size_t ranks_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // All below under mutex_.
  std::vector<Step> steps_;
  std::size_t ready_ = 0;
  bool closed_ = false;
};

}  // namespace penstock
