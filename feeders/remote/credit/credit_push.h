// SPDX-License-Identifier: Apache-2.0
// The producer's side of feeding with credit (feeders/remote/framed_format.md): sends the batches
// of a ring over a DEALER socket while the consumer has room. Pixels are not copied: libzmq sends
// them from the slot, or the slot lies in shared memory and is lent until the consumer returns it.
//
// A consumer that leaves loses its leases, and with them the batches that it had not copied. When
// it or another consumer connects, this end says hello again and continues.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "dataflow/batch_ring.h"
#include "dataflow/net/shared_memory/shared_pool.h"
#include "dataflow/probe.h"
#include "feeders/remote/receive/clock_bounds.h"
#include "feeders/remote/send/zmq_push.h"

namespace penstock::remote {

class CreditPush {
 public:
  /// Binds or connects, to one consumer. `socket.role` must be dealer; `reports` go to ZmqSocket.
  /// `ring` has one reader and outlives this object, whose destructor gives all slots back. `pool`
  /// is that of the SharedFrameMemory which holds the slots; they are lent from it. If null,
  /// batches go over the socket. Throws ConfigError.
  CreditPush(BatchRing& ring, const net::SharedPool* pool, const net::Endpoint& endpoint,
             const ZmqSocketOptions& socket, Clock& clock, Probe& probe,
             net::PeerReports reports = {});
  ~CreditPush();

  /// Sends until the plan is done, the ring ends, or a stop is requested. Unless stopped, it
  /// returns when the consumer has returned every lease and the kernel has every byte. Call once.
  /// Counts batches_sent, bytes_sent (including lent bytes), leases_lost, and send_wait_ns, the
  /// time in which a batch waited for room. Throws TimeoutError, the failure of the ring,
  /// ConfigError if the consumer does not want these batches, and DataError if a message is not one
  /// of a consumer.
  void run(const PushPlan& plan, std::stop_token stop);

  const std::string& address() const noexcept;
  /// Connection attempts of consumers with a wrong key.
  std::int64_t refused() const noexcept;
  /// How far the consumer's clock is ahead of ours; empty: not known yet. Call after run().
  std::optional<ClockBounds::Estimate> clock() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::remote
