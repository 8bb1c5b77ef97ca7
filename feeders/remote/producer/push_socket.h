// SPDX-License-Identifier: Apache-2.0
// A PUSH socket with its own libzmq context, its connections to consumers, and the frames that it
// sends.
//
// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "feeders/remote/producer/penstock_producer.h"

struct zmq_msg_t;

namespace penstock::producer {

/// An error of this library, with the code that callers in C get.
class Failure : public std::runtime_error {
 public:
  Failure(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// An argument or option is wrong, or the call comes too late.
inline Failure invalid(const std::string& text) { return Failure(PENSTOCK_PRODUCER_INVALID, text); }

/// Memory that libzmq borrows. Only one thread may use it until it is handed over.
class Frame {
 public:
  /// `done` is called once, on any thread, when the bytes are no longer needed; never if the frame
  /// is not handed over. What `done` captures lives at least that long. Throws std::bad_alloc.
  Frame(const void* data, std::size_t bytes, std::function<void()> done);
  /// A frame with a copy of the bytes.
  static Frame copy_of(std::span<const std::byte> bytes, std::function<void()> done = {});
  Frame(Frame&&) noexcept = default;
  Frame& operator=(Frame&&) noexcept = default;

  std::span<const std::byte> bytes() const noexcept;
  /// Hands the frame to libzmq for sending. From then on `done` is called, even if the frame is
  /// only closed.
  zmq_msg_t* hand_over() noexcept;
  /// Call if libzmq did not accept the frame.
  void take_back() noexcept { holder_->handed_over = false; }

 private:
  struct Holder {
    std::function<void()> done;
    bool handed_over = false;
  };
  struct Close {
    void operator()(zmq_msg_t* message) const noexcept;
  };

  Holder* holder_;  // owned by libzmq
  std::unique_ptr<zmq_msg_t, Close> message_;
};

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
  /// Describes how many consumers connected, went away or were refused so far, such as " (no
  /// consumer ever connected)".
  std::string describe_consumers() const;

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
