// SPDX-License-Identifier: Apache-2.0
// The batches of a ring, as they become ready, taken on a thread of its own: so that one thread can
// wait for them and for a socket at once.
//
// Thread-safety: one thread at a time, beside its own.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "dataflow/batch_ring.h"
#include "feeders/bell.h"
#include "feeders/zmq_push.h"

namespace penstock {

class ReadyBatches {
 public:
  /// Takes what the plan says, for reader 0; all of it outlives this. Throws ConfigError where the
  /// process is out of descriptors.
  ReadyBatches(BatchRing& ring, const PushPlan& plan, Clock& clock);

  /// Readable when there may be another one, or an end, until reset.
  int fd() const noexcept { return bell_.fd(); }
  void reset() noexcept { bell_.reset(); }

  bool has_one() const;
  struct Ready {
    ReadLease lease;
    Time since;  ///< when it was ready; of a stated pace, when a loader of that pace would have it
  };
  /// There is one.
  Ready pop();
  /// Whether there will be no more; rethrows what the ring was failed with.
  bool is_over() const;

 private:
  void run(const std::stop_token& stop) noexcept;

  BatchRing& ring_;
  const PushPlan& plan_;
  Clock& clock_;
  Bell bell_;
  mutable std::mutex mutex_;
  std::deque<Ready> ready_;     // under mutex_
  std::exception_ptr failure_;  // written before ended_
  std::atomic<bool> ended_{false};
  std::jthread thread_;  // last: it ends first
};

}  // namespace penstock
