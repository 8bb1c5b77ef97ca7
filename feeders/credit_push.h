// SPDX-License-Identifier: Apache-2.0
// The sending half of feeding by credit (feeders/framed_format.md): batches of a ring go out over a
// DEALER socket as far as the consumer has room. Pixels are not copied on the way: over the socket,
// libzmq sends them from the slot; in shared memory, the slot itself is lent, until the consumer
// returns it.
//
// A consumer that goes away loses its leases, and with them the batches that it had not copied; to
// one that comes back, or takes its place, this end says hello again and goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "dataflow/batch_ring.h"
#include "dataflow/probe.h"
#include "dataflow/shared_memory/shared_pool.h"
#include "feeders/clock_bounds.h"
#include "feeders/zmq_push.h"

namespace penstock {

class CreditPush {
 public:
  /// Binds or connects, to one consumer; `socket.role` is dealer, `reports` are ZmqSocket's. `ring`
  /// has one reader and outlives this object, whose destructor gives all slots back. `pool`: where
  /// its slots lie, in SharedFrameMemory, and are lent from; null: batches go over the socket.
  /// Throws ConfigError.
  CreditPush(BatchRing& ring, const SharedPool* pool, const Endpoint& endpoint,
             const ZmqSocketOptions& socket, Clock& clock, Probe& probe, PeerReports reports = {});
  ~CreditPush();

  /// Sends until the plan is done, the ring ends, or a stop is requested; unless stopped, returns
  /// when the consumer has returned every lease and the kernel has every byte. Called once. Counts
  /// batches_sent, bytes_sent (those lent included), send_wait_ns, the time in which a batch was
  /// there and no room for it, and leases_lost. Throws TimeoutError, what the ring was failed with,
  /// ConfigError where the consumer does not want these batches, and DataError for what no consumer
  /// says.
  void run(const PushPlan& plan, std::stop_token stop);

  const std::string& address() const noexcept;
  /// Tries of consumers that had not the right key.
  std::int64_t refused() const noexcept;
  /// How far the consumer's clock is ahead; empty: not known yet. After run().
  std::optional<ClockBounds::Estimate> clock() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
