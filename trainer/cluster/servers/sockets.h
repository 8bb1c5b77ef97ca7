// SPDX-License-Identifier: Apache-2.0
// The ZeroMQ sockets of the processes of a run, with one wait for all of them: workers connect to
// parameter servers, and ranks to the model servers of other processes. Messages are headers with
// at most one frame of data (message.h). Data are sent without a copy and stay where they were
// received.
//
// Thread-safety: one thread for each object; any thread may call EventFd::signal.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/machine/event_fd.h"
#include "dataflow/net/curve_setup.h"
#include "dataflow/net/socket_security.h"
#include "trainer/cluster/servers/frame.h"
#include "trainer/cluster/servers/message.h"

namespace penstock::cluster {

/// libzmq's limit of a message's length also counts handshakes and encryption overhead, some
/// hundred bytes. Limits are larger than the payload by this much.
inline constexpr std::size_t kTransportBytes = 4096;

struct SocketLimits {
  std::size_t frame = kMaxFrame;  ///< bytes; peers that send more are disconnected
  /// Messages of one peer that wait in each direction; a listening socket drops more. 0: no limit,
  /// because the parts of the weights bound their number, and data stay in the owner's memory.
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

class MessageSockets {
 public:
  /// The keys of sockets over TCP. Throws ConfigError.
  MessageSockets(const net::CurveSetup& curve, const net::PeerReports& reports, int io_threads);
  /// Waits up to `linger` for sent messages to leave.
  ~MessageSockets();

  /// Binds a socket, and returns its index. Throws zmq::error_t.
  std::size_t listen(const std::string& endpoint, const SocketLimits& limits = {});
  /// Connects a socket to a peer that need not run yet, and returns its index. `key` is the index
  /// of the peer's key, if there are several.
  std::size_t connect(const std::string& endpoint, std::size_t key,
                      const SocketLimits& limits = {});
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
  void send(std::size_t socket, const std::string& peer, const ServerHeader& header,
            std::span<const std::byte> data, const Borrowed* borrowed);
  /// Drops messages that have not left yet. Nothing can be sent after it.
  void drop();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// A parameter server's socket at `address`, HOST:PORT, which is the only one. `insecure`: may bind
/// to addresses that other machines can reach, in plain text. Throws ConfigError if it cannot be
/// bound or has the wrong keys.
std::unique_ptr<MessageSockets> listen_as_server(const std::string& address, bool insecure,
                                                 const net::CurveSetup& curve,
                                                 const net::PeerReports& reports, int io_threads);
/// A worker's sockets: socket N connects to addresses[N]. Throws ConfigError if the keys are not a
/// client's.
std::unique_ptr<MessageSockets> connect_to_servers(std::span<const std::string> addresses,
                                                   const net::CurveSetup& curve, int io_threads);

}  // namespace penstock::cluster
