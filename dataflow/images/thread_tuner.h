// SPDX-License-Identifier: Apache-2.0
// A ThreadChoice between the pool whose threads are chosen, the ring that they fill, and whoever
// wants to know that the choice has been made. The ring is watched until then.
//
// Thread-safety: begin() before the pool's threads start; the others from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/probe.h"
#include "dataflow/thread_choice.h"

namespace penstock {

class ThreadTuner {
 public:
  /// `probe` outlives the tuner, and gets a note and facts: decode_threads_chosen and
  /// decode_threads_most.
  ThreadTuner(std::int32_t most, Probe& probe) : most_(most), probe_(probe) {}

  /// `ring` outlives the tuner's use.
  void begin(BatchRing& ring);
  /// A batch was published: how many threads may run now.
  std::int32_t observe(Time now);
  bool is_settled() const;
  /// Whatever has been chosen by now stays. The number of threads.
  std::int32_t settle();

 private:
  void say();

  const std::int32_t most_;
  Probe& probe_;
  mutable std::mutex mutex_;
  // All below under mutex_.
  BatchRing* ring_ = nullptr;
  std::optional<ThreadChoice> choice_;
  bool said_ = false;
};

}  // namespace penstock
