// SPDX-License-Identifier: Apache-2.0
// Connects a ThreadChoice to the pool whose threads it chooses and the ring that they fill. Other
// code can ask it whether the choice is settled. The ring is watched until then.
//
// Thread-safety: call begin() before the pool's threads start; the others from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/images/thread_choice.h"
#include "dataflow/probe.h"

namespace penstock {

class ThreadTuner {
 public:
  /// `probe` must outlive the tuner. It gets a note and two facts: decode_threads_chosen and
  /// decode_threads_most.
  ThreadTuner(std::int32_t most, Probe& probe) : most_(most), probe_(probe) {}

  /// `ring` must outlive the use of the tuner.
  void begin(BatchRing& ring);
  /// Call it when a batch was published. Returns how many threads may run now.
  std::int32_t observe(Time now);
  bool is_settled() const;
  /// Keeps the current choice. Returns the number of threads.
  std::int32_t settle();

 private:
  void say();

  const std::int32_t most_;
  Probe& probe_;
  mutable std::mutex mutex_;
  // mutex_ protects everything below.
  BatchRing* ring_ = nullptr;
  std::optional<ThreadChoice> choice_;
  bool said_ = false;
};

}  // namespace penstock
