// SPDX-License-Identifier: Apache-2.0
// Shared by both feeders with credit: the consumer that receives batches, the producer process that
// option `producer` starts, and the decision when to stop waiting.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "feeders/feeder.h"
#include "feeders/remote/credit/credit_consumer.h"
#include "feeders/remote/receive/producer_process.h"
#include "feeders/remote/receive/zmq_socket.h"

namespace penstock::remote {

class CreditIntake {
 public:
  static constexpr std::int64_t kMostCredit = 1 << 16;

  /// `context.options` are the options of zmq-consume. Sets role and hwm of `socket`. Throws
  /// ConfigError.
  CreditIntake(const FeederContext& context, ZmqSocketOptions socket, FramedEncoding encoding);

  CreditConsumer& consumer() noexcept { return consumer_; }
  /// Limit of batches in flight, of all producers together.
  std::int64_t together() const noexcept { return plan_.together; }

  /// Waits at most `beat`, for a message or until `fd` is readable. Returns false if stopped, or
  /// if the expected producers have ended and all their batches are here. Throws TimeoutError after
  /// the deadline, and DataError if the producer process failed.
  bool await(Time deadline, const std::stop_token& stop, int fd,
             Nanoseconds beat = CreditConsumer::kBeat);
  /// Like await(), for use while we still work on batches, so that no timeout applies.
  bool await_without_timeout(const std::stop_token& stop, int fd);

  /// Explains why nothing usable came in time.
  std::string silence();

 private:
  bool producer_ended();
  void check_end_of_producer() const;

  Clock& clock_;
  const BatchSpec spec_;
  const Nanoseconds timeout_;
  const CreditPlan plan_;
  const net::Endpoint endpoint_;
  const bool binds_;
  Counter& images_;
  CreditConsumer consumer_;
  std::optional<ProducerProcess> producer_;  // ends before the socket does
  std::optional<Time> ended_at_;             // when we saw the producer's end
};

}  // namespace penstock::remote
