// SPDX-License-Identifier: Apache-2.0
// Reads all sockets of zmq-consume as one. It takes messages of each endpoint in turn, so that none
// starves another. Any number of threads may receive; one at a time uses the sockets, and the
// others block until it is done. No message is queued or allocated in between.
//
// Thread-safety: any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/stage_timer.h"
#include "feeders/feeder.h"
#include "feeders/remote/receive/bad_messages.h"
#include "feeders/remote/receive/framed_intake.h"
#include "feeders/remote/receive/producer_process.h"
#include "feeders/remote/receive/zmq_receiver.h"
#include "feeders/remote/zmq_consume_plan.h"

namespace penstock::remote {

class ZmqIntake {
 public:
  /// Opens all sockets, and starts the producer process. Throws ConfigError.
  ZmqIntake(const FeederContext& context, const ConsumePlan& plan);

  /// Accounts of the producers that sent framed messages through this intake.
  FramedIntake& framed() noexcept { return framed_; }

  /// Receives the next message, good or bad. Blocks. False: stopped, or the producers have ended.
  /// `since`: when this thread began to wait for a good message. `timer` records the waits, and
  /// `item` is restarted after each. Throws TimeoutError if no good message arrives within the
  /// timeout, and DataError if the producer process failed.
  bool receive(ZmqMessage& message, Time since, StageTimer& timer, StageTimer::Item& item,
               const std::stop_token& stop);
  /// The caller calls one of these for each message. Throws DataError if the policy for bad
  /// messages says so.
  void accept(const ZmqMessage& message);
  void reject(const ZmqMessage& message, const std::string& why);

  /// Notes which endpoints sent nothing, if there are several.
  void note_silent_endpoints();

 private:
  // Call all of these with mutex_ held.
  bool receive_now(ZmqMessage& message);
  /// Deadline of the next good message; another thread may be about to accept one.
  Time deadline(Time since) const { return std::max(since, good_at_.load()) + timeout_; }
  bool await_message(Time since, StageTimer& timer, const std::stop_token& stop);
  ZmqSocket::Wake wait(StageTimer& timer, Nanoseconds limit, int other_fd,
                       const std::stop_token& stop);
  void cut_off_offenders();
  bool producer_ended();
  void end_of_producer() const;
  std::string refusals() const;
  std::string silence() const;

  Clock& clock_;
  Probe& probe_;
  const BatchSpec spec_;
  const Nanoseconds timeout_;
  Counter &received_, &bytes_;
  BadMessages bad_;
  FramedIntake framed_;
  const bool is_shared_;  // by several threads
  std::vector<std::string> endpoint_names_;
  std::atomic<Time> good_at_{Time::min()};  // when the last good message came

  std::mutex mutex_;  // held by the thread that uses the sockets
  // All below under mutex_.
  std::vector<std::unique_ptr<ZmqReceiver>> receivers_;
  std::vector<ZmqSocket*> sockets_;          // of receivers_
  std::size_t turn_ = 0;                     // index of the socket to read first
  std::optional<ProducerProcess> producer_;  // ends before the sockets do
};

}  // namespace penstock::remote
