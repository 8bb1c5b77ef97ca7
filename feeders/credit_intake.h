// SPDX-License-Identifier: Apache-2.0
// What both feeders by credit stand on: a desk where producers send their batches, the process that
// the user may have had us start, and when to stop waiting.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "feeders/credit_desk.h"
#include "feeders/feeder.h"
#include "feeders/producer_process.h"
#include "feeders/zmq_socket.h"

namespace penstock {

class CreditIntake {
 public:
  static constexpr std::int64_t kMostCredit = 1 << 16;

  /// `context.options` are zmq-consume's. Of `socket`, role and hwm are filled in here. Throws
  /// ConfigError.
  CreditIntake(const FeederContext& context, ZmqSocketOptions socket, FramedEncoding encoding);

  CreditDesk& desk() noexcept { return desk_; }
  /// Batches under way, at most.
  std::int64_t together() const noexcept { return plan_.together; }

  /// Waits a beat at most, for a message or until `bell` is readable. False: stopped, or the
  /// producers have ended that are waited for and all they sent is here. Throws TimeoutError beyond
  /// the deadline, and DataError where the producer's process failed.
  bool await(Time deadline, const std::stop_token& stop, int bell,
             Nanoseconds beat = CreditDesk::kBeat);
  /// The same while we are busy with what came, so that nobody is late.
  bool await_bell(const std::stop_token& stop, int bell);

  /// What is known when nothing usable came in time.
  std::string silence();

 private:
  bool producer_ended();
  void check_end_of_producer() const;

  Clock& clock_;
  const BatchSpec spec_;
  const Nanoseconds timeout_;
  const CreditPlan plan_;
  const Endpoint endpoint_;
  const bool binds_;
  Counter& images_;
  CreditDesk desk_;
  std::optional<ProducerProcess> producer_;  // ends before the socket does
  std::optional<Time> ended_at_;             // when that was seen
};

}  // namespace penstock
