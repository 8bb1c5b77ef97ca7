// SPDX-License-Identifier: Apache-2.0
// All sockets of zmq-consume as one: messages of each endpoint in turn, so that none of them
// starves another, for any number of threads, of which one at a time has the sockets. The others
// wait behind it: no message waits in between, and none is allocated.
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
#include "feeders/bad_messages.h"
#include "feeders/feeder.h"
#include "feeders/framed_intake.h"
#include "feeders/producer_process.h"
#include "feeders/zmq_consume_plan.h"
#include "feeders/zmq_receiver.h"

namespace penstock {

class ZmqIntake {
 public:
  /// Opens all sockets, and starts the producer's process. Throws ConfigError.
  ZmqIntake(const FeederContext& context, const ConsumePlan& plan);

  /// Accounts of producers that say who they are, for the messages received here.
  FramedIntake& framed() noexcept { return framed_; }

  /// The next message, good or bad. Blocks; false: stopped, or producers have ended. `since`:
  /// when this thread began to want a good one. `timer` keeps what it waits, `item` is restarted
  /// behind waits. Throws TimeoutError where no good message came for as long as producers may be
  /// silent, and DataError where the producer's process failed.
  bool receive(ZmqMessage& message, Time since, StageTimer& timer, StageTimer::Item& item,
               const std::stop_token& stop);
  /// What became of it: one of both is called. Throws DataError where the policy about bad messages
  /// says so.
  void accept(const ZmqMessage& message);
  void reject(const ZmqMessage& message, const std::string& why);

  /// Says which endpoints sent nothing, where there are several.
  void note_silent_endpoints();

 private:
  // All with mutex_.
  bool receive_now(ZmqMessage& message);
  /// Of the next good message; another thread may be about to accept one.
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
  const bool is_shared_;  // among threads
  std::vector<std::string> endpoint_names_;
  std::atomic<Time> good_at_{Time::min()};  // when the last good message came

  std::mutex mutex_;  // of the thread that has the sockets
  // All below under mutex_.
  std::vector<std::unique_ptr<ZmqReceiver>> receivers_;
  std::vector<ZmqSocket*> sockets_;          // theirs
  std::size_t turn_ = 0;                     // whose messages are looked for first
  std::optional<ProducerProcess> producer_;  // ends before the sockets do
};

}  // namespace penstock
