// SPDX-License-Identifier: Apache-2.0
// Takes the ready batches of a ring on a separate thread, so that the caller can wait for them and
// for a socket at once.
//
// Thread-safety: one caller at a time, besides the internal thread.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "dataflow/batch_ring.h"
#include "dataflow/machine/event_fd.h"
#include "feeders/remote/send/zmq_push.h"

namespace penstock::remote {

class ReadyBatches {
 public:
  /// Takes the batches that the plan asks for, as reader 0. All arguments outlive this object.
  /// Throws ConfigError if the process has no free file descriptor.
  ReadyBatches(BatchRing& ring, const PushPlan& plan, Clock& clock);

  /// Readable when there may be another batch, or an end, until reset().
  int fd() const noexcept { return news_.get(); }
  void reset() noexcept { news_.drain(); }

  bool has_one() const;
  struct Ready {
    ReadLease lease;
    Time since;  ///< when it was ready; with a given pace, when a loader of that pace would have it
  };
  /// Call only if has_one().
  Ready pop();
  /// Whether there are no more batches; rethrows the failure of the ring.
  bool is_over() const;

 private:
  void run(const std::stop_token& stop) noexcept;

  BatchRing& ring_;
  const PushPlan& plan_;
  Clock& clock_;
  EventFd news_;
  mutable std::mutex mutex_;
  std::deque<Ready> ready_;     // under mutex_
  std::exception_ptr failure_;  // written before ended_
  std::atomic<bool> ended_{false};
  std::jthread thread_;  // last: it ends first
};

}  // namespace penstock::remote
