// SPDX-License-Identifier: Apache-2.0
// Sends batches over ZeroMQ: pushed to all consumers, or with credit while the one consumer has
// room (feeders/remote/framed_format.md). What is sent, and from which memory, is a BatchSupply's.
//
// A consumer with credit that leaves loses its leases, and with them the batches that it had not
// copied. When it or another consumer connects, this end says hello again and continues.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "dataflow/clock.h"
#include "dataflow/net/socket_security.h"
#include "dataflow/net/zmq_endpoint.h"
#include "dataflow/probe.h"
#include "feeders/remote/receive/clock_bounds.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/send/batch_supply.h"
#include "feeders/remote/send/producer_session.h"

namespace penstock::remote {

class Sender {
 public:
  /// Binds or connects. `options.role` is push, or dealer to send with credit; `reports` go to
  /// ZmqSocket. Throws ConfigError.
  Sender(std::unique_ptr<BatchSupply> supply, const net::Endpoint& endpoint,
         const ZmqSocketOptions& options, Clock& clock, Probe& probe,
         net::PeerReports reports = {});

  /// Sends a hello, then batches until the plan is done, the data end, or a stop is requested.
  /// Unless stopped, it sends an end and returns when the kernel has every byte, and the consumer
  /// has returned every lease. Call once. Counts batches_sent, images_sent, bytes_sent (including
  /// lent bytes), send_wait_ns (time in which no consumer took a batch) and, with credit,
  /// leases_lost. Throws TimeoutError; what BatchSupply::next() throws; ConfigError if the consumer
  /// refuses this side or its batches for good; DataError if a message is not one of a consumer.
  void run(const PushPlan& plan, std::stop_token stop);

  const std::string& address() const noexcept { return socket_.address(); }
  /// Connection attempts of consumers with a wrong key.
  std::int64_t refused() const noexcept { return socket_.peers().refused; }
  /// With credit: how far the consumer's clock is ahead of ours. Empty: not known. Call after
  /// run().
  std::optional<ClockBounds::Estimate> clock() const noexcept;

 private:
  bool send(const BatchSupply::Message& message, const PushPlan& plan, const std::stop_token& stop);
  bool await_credit(Nanoseconds timeout, const std::stop_token& stop);
  bool finish(const PushPlan& plan, const std::stop_token& stop);
  [[noreturn]] void nobody_takes(Nanoseconds timeout) const;

  const net::Endpoint endpoint_;
  Clock& clock_;
  Counter &batches_, &images_, &bytes_, &wait_ns_;
  Time progress_{};  // with credit: when a batch was taken or a lease returned
  const std::unique_ptr<BatchSupply> supply_;
  ZmqSocket socket_;  // closes before the supply ends: libzmq gives back what it holds
  std::optional<ProducerSession> session_;  // empty: batches are pushed
};

}  // namespace penstock::remote
