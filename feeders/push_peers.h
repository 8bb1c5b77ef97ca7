// SPDX-License-Identifier: Apache-2.0
// What the pushing sides of ZeroMQ feeding have in common towards those who take the batches.
#pragma once

#include <stop_token>

#include "dataflow/clock.h"
#include "dataflow/probe.h"
#include "dataflow/zmq_endpoint.h"
#include "feeders/zmq_socket.h"

namespace penstock {

/// Adds the time that it lives to a counter of nanoseconds, however the wait ends: a stop and a
/// time-out end those for a consumer that has stalled.
class CountedWait {
 public:
  CountedWait(Counter& total, Clock& clock) : total_(total), clock_(clock), since_(clock.now()) {}
  CountedWait(const CountedWait&) = delete;
  CountedWait& operator=(const CountedWait&) = delete;
  ~CountedWait() { total_.add((clock_.now() - since_).count()); }

 private:
  Counter& total_;
  Clock& clock_;
  const Time since_;
};

/// Throws TimeoutError: no batch was taken for that long.
[[noreturn]] void nobody_takes(const Endpoint& endpoint, const ZmqSocket::Peers& peers,
                               Nanoseconds timeout);

/// After the last message: blocks until the receivers have read every byte that lies in the kernel,
/// and gives the socket time for what libzmq itself still holds. Returns early when stopped. Throws
/// TimeoutError.
void await_all_read(ZmqSocket& socket, const Endpoint& endpoint, Clock& clock, Nanoseconds timeout,
                    const std::stop_token& stop);

}  // namespace penstock
