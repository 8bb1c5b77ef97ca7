// SPDX-License-Identifier: Apache-2.0
// Finds the number of threads that fill a ring as fast as its readers empty it. It starts with one
// thread and doubles the number until readers no longer wait, or all threads run. Then it takes as
// many as the readers' rate needs, from the rate of one thread while readers waited, and adds one
// if that is too few. Its only inputs are times and waits.
//
// The readers' wait time does not tell how much more they could take: a reader that fills its own
// queues always waits. Readers also wait while those queues fill up, so it takes two intervals with
// waits to find that threads are too few. A shrinking reserve hides waits.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/probe.h"

namespace penstock {

/// Chooses the number of a pool's threads by the ring that they fill. Other code can ask it whether
/// the choice is settled. The ring is watched until then.
///
/// Thread-safety: call begin() before the pool's threads start; the others from any thread.
class ThreadTuner {
 public:
  /// `probe` must outlive the tuner. It gets a note and two facts: decode_threads_chosen and
  /// decode_threads_most.
  ThreadTuner(std::int32_t most, Probe& probe) : most_(most), probe_(probe) {}

  /// `ring` must outlive the use of the tuner. Call it once.
  void begin(BatchRing& ring);
  /// Call it when a batch was published, in the order of time. Returns how many threads may run
  /// now.
  std::int32_t observe(Time now);
  bool is_settled() const;
  /// Keeps the current choice. Returns the number of threads.
  std::int32_t settle();

 private:
  enum class Ending : std::uint8_t { too_early, enough, no_more };
  void begin_interval(const RingStats& ring, Time now) noexcept;
  void measure(const RingStats& ring, Time now);
  void take_more() noexcept;
  void take_enough(double demand) noexcept;
  void restart() noexcept;
  void end(Ending ending) noexcept;
  std::string text() const;
  void say();

  const std::int32_t most_;
  Probe& probe_;
  mutable std::mutex mutex_;
  // mutex_ protects everything below.
  BatchRing* ring_ = nullptr;
  std::int32_t threads_ = 1, too_few_ = 0;   // too_few_: the largest number known to be too few
  double wait_ = 0, wait_with_too_few_ = 0;  // shares of the time
  double rate_of_one_ = 0;  // batches per second and thread, measured while readers wait
  bool settled_ = false, measuring_ = false, waited_before_ = false, is_fitted_ = false;
  bool said_ = false;
  Ending ending_ = Ending::too_early;
  // The current interval; none begins before batch skip_until_.
  std::uint64_t skip_until_ = 0, first_batch_ = 0, reserve_ = 0;
  Time began_{};
  Nanoseconds waited_{};
};

}  // namespace penstock
