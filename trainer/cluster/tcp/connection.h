// SPDX-License-Identifier: Apache-2.0
// Messages of any length between two ranks that meet over TCP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dataflow/clock.h"
#include "trainer/cluster/liveness/frame_socket.h"

namespace penstock::tcp {

struct Message {
  enum class Kind : std::uint32_t {
    hello = 1,  ///< a rank comes to rank 0
    welcome,    ///< rank 0: all ranks are here; the identities of their hosts
    refused,    ///< rank 0: the reason
    absent,     ///< rank 0: a rank did not come; the reason
    text,       ///< of a rank, for all_gather
    texts,      ///< of all ranks
    stopped,    ///< a rank was stopped and ends; its rank
    ended       ///< all processes end; the exit code and the rank that has it
  };
  static constexpr Kind kLast = Kind::ended;
  Kind kind = Kind::text;
  std::string body{};
};

/// Takes messages out of the bytes of a connection.
class MessageReader {
 public:
  static constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
  /// The longest body that is accepted.
  void limit(std::size_t bytes) noexcept { most_ = bytes; }
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// Returns the next message if all of it has arrived. Throws DataError for bytes that are not a
  /// message, and for one that is too long.
  std::optional<Message> next();

 private:
  std::size_t most_ = kMost;
  std::string bytes_;
};

/// The bytes of a message on the wire.
std::string to_bytes(const Message& message);

/// One thread may send while another receives; the second one calls the other members.
class Connection {
 public:
  explicit Connection(liveness::FrameSocket socket = liveness::FrameSocket())
      : socket_(std::move(socket)) {}

  int file() const noexcept { return socket_.file(); }
  /// False: nothing will be received any more.
  bool is_open() const noexcept { return socket_.is_open() && !ended_; }
  void end() noexcept { ended_ = true; }
  std::string own_address() const { return socket_.own_address(); }
  MessageReader& reader() noexcept { return reader_; }

  /// Blocks until the system has taken the message. False: the peer is gone, or it was not done
  /// before `deadline`; the connection is then of no use.
  bool send(const Message& message, Time deadline);
  /// Returns the next whole message, without waiting. Nothing: none has arrived yet; or none will
  /// arrive, and is_open() says so. Throws DataError.
  std::optional<Message> receive();

 private:
  liveness::FrameSocket socket_;
  MessageReader reader_;
  bool ended_ = false;
};

/// Milliseconds until `deadline`, for poll(): at least 0, at most an hour.
int milliseconds_until(Time deadline);

}  // namespace penstock::tcp
