// SPDX-License-Identifier: Apache-2.0
// The producer's end of the credit protocol (feeders/remote/framed_format.md). It says hello on
// each connection, receives what the consumer wants, and knows how many batches it may send. The
// caller sends the batches, and the end, through the same socket.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "feeders/remote/receive/clock_bounds.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/send/outgoing_messages.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {

class ProducerSession {
 public:
  /// Called during look().
  struct Hooks {
    std::function<void()> lost;                   ///< the consumer has gone; leases are void
    std::function<void(std::uint64_t)> returned;  ///< the consumer returned this lease
    /// A stranger's connection was closed. Empty if this side connects: then the one that answers
    /// is no stranger.
    std::function<void(const std::string&)> say;
  };

  /// `hello`: the two frames of a hello. `classes`: labels are below it. `socket`, a DEALER,
  /// outlives this object.
  ProducerSession(ZmqSocket& socket, const net::Endpoint& endpoint,
                  std::span<const OutgoingFrame> hello, std::int32_t classes, Hooks hooks);

  /// Checks the connection, says hello if due, and handles all received messages. Call it before
  /// each batch, and every kBeat. Throws ConfigError if the consumer does not want these batches,
  /// and DataError if this side connects and a message is not one of a consumer.
  void look();
  /// Longest time between two calls of look(): libzmq does not wake a waiter for connects and
  /// disconnects.
  static constexpr Nanoseconds kBeat = std::chrono::milliseconds(20);

  bool is_welcome() const noexcept { return welcomed_; }
  /// Whether the consumer has room for one more batch.
  bool may_send() const noexcept { return welcomed_ && sent_since_welcome_ < credits_; }
  /// Call when a batch was sent.
  void note_sent() noexcept { ++sent_since_welcome_; }
  /// How far the consumer's clock is ahead of ours; empty: not known yet.
  std::optional<ClockBounds::Estimate> clock() const noexcept { return clock_.estimate(); }

 private:
  void remove_consumer();
  void say_hello();
  bool receive();
  void handle(const FramedMessage& message);
  void handle_welcome(const FramedMessage& message);
  void note_times(const FramedHeader& header);

  ZmqSocket& socket_;
  const net::Endpoint endpoint_;
  const Hooks hooks_;
  FramedHeader hello_;
  const std::vector<std::byte> hello_text_;
  const std::int32_t classes_;

  // About the connected consumer.
  std::int64_t seen_joined_ = 0, seen_left_ = 0;
  bool wants_hello_ = false, welcomed_ = false;
  std::uint64_t credits_ = 0, sent_since_welcome_ = 0;
  ClockBounds clock_;
  ZmqMessage message_;
};

}  // namespace penstock::remote
