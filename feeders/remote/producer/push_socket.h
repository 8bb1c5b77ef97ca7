// SPDX-License-Identifier: Apache-2.0
// A PUSH socket with a context of its own, and what is known of the consumers at its other end.
//
// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "producer/frame.h"

namespace penstock::producer {

class Connections;

using SteadyTime = std::chrono::steady_clock::time_point;

struct PushOptions {
  std::string endpoint;
  bool bind = false;
  int hwm = 4;                                     ///< messages that wait, per consumer
  std::string server_key, public_key, secret_key;  ///< Z85; empty: no CURVE
};

class PushSocket {
 public:
  /// Throws Failure.
  explicit PushSocket(const PushOptions& options);
  /// Drops what waits.
  ~PushSocket();

  /// The endpoint in full.
  const std::string& address() const noexcept;
  const Connections& connections() const noexcept;

  /// Blocks until a message can be sent; false: it is too late.
  bool wait_for_room(SteadyTime deadline);
  /// The first frame of a message; false: there is no room, and it was not taken. `more`: others
  /// follow, and have to.
  bool begin(Frame& first, bool more);
  /// All others. Where the consumer that has the first one is gone, they are dropped with it.
  void finish(std::span<Frame> others);

  /// Blocks until the kernel holds nothing that a consumer has not read; false: it is too late.
  bool wait_until_read(SteadyTime deadline);
  /// Closes the socket and drops what waits, or gives it that time. Nothing else may follow.
  void close(std::chrono::milliseconds linger) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::producer
