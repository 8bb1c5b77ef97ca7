// SPDX-License-Identifier: Apache-2.0
// A PUSH socket with its own libzmq context, and the state of its connections to consumers.
//
// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "feeders/remote/producer/frame.h"

namespace penstock::producer {

class Connections;

using SteadyTime = std::chrono::steady_clock::time_point;

struct PushOptions {
  std::string endpoint;
  bool bind = false;
  int hwm = 4;                                     ///< messages that may wait, per consumer
  std::string server_key, public_key, secret_key;  ///< Z85; empty: no CURVE
};

class PushSocket {
 public:
  /// Throws Failure.
  explicit PushSocket(const PushOptions& options);
  /// Drops waiting messages.
  ~PushSocket();

  /// The full endpoint.
  const std::string& address() const noexcept;
  const Connections& connections() const noexcept;

  /// Blocks until a message can be sent; false: the deadline has passed.
  bool wait_for_room(SteadyTime deadline);
  /// Sends the first frame of a message. False: no room, and the frame was not taken. `more`: other
  /// frames must follow.
  bool begin(Frame& first, bool more);
  /// Sends the other frames. If the consumer of the first frame has gone, they are dropped with it.
  void finish(std::span<Frame> others);

  /// Blocks until consumers have read all that the kernel holds; false: the deadline has passed.
  bool wait_until_read(SteadyTime deadline);
  /// Closes the socket. Waiting messages get `linger` to leave, then are dropped. No other call may
  /// follow.
  void close(std::chrono::milliseconds linger) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::producer
