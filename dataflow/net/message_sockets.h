// SPDX-License-Identifier: Apache-2.0
// ZeroMQ sockets for messages of a header and at most one frame of data, with one wait for all of
// them: workers connect to parameter servers, and ranks to the model servers of other processes.
// Data are sent without a copy and stay where they were received.
//
// Thread-safety: one thread for each object; any thread may call EventFd::signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/net/curve_setup.h"
#include "dataflow/net/socket_security.h"

namespace penstock::net {

/// libzmq's limit of a message's length also counts handshakes and encryption overhead, some
/// hundred bytes. Limits are larger than the payload by this much.
inline constexpr std::size_t kTransportBytes = 4096;

/// A frame of a received message, which was not copied. Its memory is freed with its owner.
struct Frame {
  using Owner = std::unique_ptr<void, void (*)(void*)>;
  std::span<const std::byte> bytes{};
  Owner owner{nullptr, [](void*) {}};  ///< frees the memory
};

/// The first two of `frames` frames of a message, from the peer with that name and (if known) that
/// connection.
struct Received {
  std::size_t socket = 0;
  std::string peer{}, address{};
  int connection = -1;
  std::size_t frames = 0;
  std::span<const std::byte> header{};
  Frame data{};
};

struct SocketLimits {
  std::size_t frame = 0;  ///< bytes; peers that send more are disconnected
  /// Messages of one peer that wait in each direction; a listening socket drops more. 0: no limit.
  int queued = 0;
  bool watched = true;                    ///< reports connections that ended
  std::chrono::milliseconds linger{500};  ///< at the end, for sent messages to leave
};

/// Data that are sent without a copy. libzmq calls `sent` with `hint` on one of its threads once
/// the data are no longer read. Null: the data stay.
struct Borrowed {
  void (*sent)(void* data, void* hint) = nullptr;
  void* hint = nullptr;
};

/// libzmq cannot open, bind or connect a socket.
class SocketError : public Error {
 public:
  SocketError(const char* why, bool address_taken) : Error(why), address_taken_(address_taken) {}
  bool address_taken() const noexcept { return address_taken_; }  ///< by another socket

 private:
  bool address_taken_;
};

class MessageSockets {
 public:
  /// The keys of sockets over TCP. Throws ConfigError, and Unavailable if this program was built
  /// without ZeroMQ.
  MessageSockets(const CurveSetup& curve, const PeerReports& reports, int io_threads);
  /// Waits up to `linger` for sent messages to leave.
  ~MessageSockets();

  /// Binds a socket, and returns its index. Throws SocketError.
  std::size_t listen(const std::string& endpoint, const SocketLimits& limits);
  /// Connects a socket to a peer that need not run yet, and returns its index. `key` is the index
  /// of the peer's key, if there are several. Throws SocketError.
  std::size_t connect(const std::string& endpoint, std::size_t key, const SocketLimits& limits);
  /// The endpoint of a listening socket, with the port that the system chose.
  std::string endpoint(std::size_t socket) const;

  /// Waits until a message arrives, a watched connection ends, `wake` is signalled, or `limit`
  /// passes. Drains `wake`.
  void wait(Nanoseconds limit, const EventFd& wake);
  /// Takes the next message, of each socket in turn. False: there is none. The header is valid
  /// until the next call.
  bool receive(Received& message);
  struct Ended {
    std::size_t socket;
    int connection;
  };
  /// The watched connections that ended since the last call. Throws ConfigError if a peer will
  /// never admit this side.
  std::vector<Ended> ended();
  /// Connection attempts of peers without the right key.
  std::int64_t refused() const noexcept;
  /// Sends to `peer`, as `receive` named it; connected sockets have one peer, without a name. Drops
  /// the message if the peer is gone. `borrowed` null: copies the data. Never blocks for a peer.
  void send(std::size_t socket, const std::string& peer, std::span<const std::byte> header,
            std::span<const std::byte> data, const Borrowed* borrowed);
  /// Drops messages that have not left yet. Nothing can be sent after it.
  void drop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::net
