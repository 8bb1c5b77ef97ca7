// SPDX-License-Identifier: Apache-2.0
// Shared by the pushing sides of ZeroMQ feeding: waits for consumers.
#pragma once

#include <stop_token>

#include "dataflow/clock.h"
#include "dataflow/net/zmq_endpoint.h"
#include "dataflow/probe.h"
#include "feeders/remote/receive/zmq_socket.h"

namespace penstock::remote {

/// Adds its lifetime to a counter of nanoseconds, even if a stop or a timeout ends the wait for a
/// stalled consumer.
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

/// Throws TimeoutError: no consumer took a batch within the timeout.
[[noreturn]] void nobody_takes(const net::Endpoint& endpoint, const ZmqSocket::Peers& peers,
                               Nanoseconds timeout);

/// Call after the last message. Blocks until the receivers have read every byte that is in the
/// kernel, and gives the socket time for what libzmq still holds. Returns early when stopped.
/// Throws TimeoutError.
void await_all_read(ZmqSocket& socket, const net::Endpoint& endpoint, Clock& clock,
                    Nanoseconds timeout, const std::stop_token& stop);

}  // namespace penstock::remote
