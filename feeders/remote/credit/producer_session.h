// SPDX-License-Identifier: Apache-2.0
// A producer's talk with its consumer by credit (feeders/framed_format.md): it says hello on each
// connection anew, hears what is wanted, and knows how many batches it may send. The batches
// themselves are its user's, who sends them through the same socket.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "dataflow/wire/framed.h"
#include "dataflow/wire/framed_text.h"
#include "feeders/clock_bounds.h"
#include "feeders/zmq_message.h"
#include "feeders/zmq_socket.h"

namespace penstock {

/// What a producer says of itself and of its batches.
struct CreditOffer {
  FramedHeader header;  ///< of a hello, but for when it is sent
  FramedHello hello;
  std::int32_t classes = 0;  ///< labels are below
};

class CreditLine {
 public:
  /// What comes of it, while look() runs.
  struct Hooks {
    std::function<void()> lost;                   ///< the consumer is gone, and what it was lent
    std::function<void(std::uint64_t)> returned;  ///< this lease is ours again
  };

  /// `socket`, a dealer, outlives it.
  CreditLine(ZmqSocket& socket, const Endpoint& endpoint, CreditOffer offer, Hooks hooks = {});

  /// Sees who is connected, says hello where that is due, and hears all that was said. To be called
  /// before each batch, and every kBeat. Throws ConfigError where the consumer does not want these
  /// batches, and DataError for what no consumer says.
  void look();
  /// Between two looks: libzmq wakes nobody for who comes and goes.
  static constexpr Nanoseconds kBeat = std::chrono::milliseconds(20);

  bool is_welcome() const noexcept { return welcomed_; }
  /// There is room for one more batch.
  bool may_send() const noexcept { return welcomed_ && sent_since_welcome_ < credits_; }
  /// A batch went out.
  void note_sent() noexcept { ++sent_since_welcome_; }
  /// An end goes out, once all batches have. False: it did not.
  bool send_end(std::uint64_t batches, std::uint64_t images);

  /// A frame is copied; false: nobody is connected.
  bool put(std::span<const std::byte> frame, bool more);
  std::uint64_t producer() const noexcept { return offer_.header.producer; }
  /// How far the consumer's clock is ahead; empty: not known yet.
  std::optional<ClockBounds::Estimate> clock() const noexcept { return clock_.estimate(); }

 private:
  void forget_consumer();
  void say_hello();
  bool receive();
  void hear(const FramedMessage& message);
  void hear_welcome(const FramedMessage& message);
  void note_times(const FramedHeader& header);

  ZmqSocket& socket_;
  const Endpoint endpoint_;
  const CreditOffer offer_;
  const Hooks hooks_;

  // Of the consumer that is connected.
  std::int64_t seen_joined_ = 0, seen_left_ = 0;
  bool wants_hello_ = false, welcomed_ = false;
  std::uint64_t credits_ = 0, sent_since_welcome_ = 0;
  std::int64_t hello_sent_ns_ = 0;
  ClockBounds clock_;
  ZmqMessage heard_;
};

/// The hello of a program on this machine: its name, process, host and boot id.
FramedHello hello_of_this_process(const std::string& name);

/// Of a producer that begins.
std::uint64_t draw_producer_number();

}  // namespace penstock
