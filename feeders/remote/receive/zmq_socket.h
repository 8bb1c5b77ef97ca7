// SPDX-License-Identifier: Apache-2.0
// A checked PUSH, PULL, DEALER or ROUTER socket with its own libzmq context, and a wait that ends
// when a stop is requested. The caller sends and receives through the native handle, or receives
// into a ZmqMessage.
//
// Thread-safety: one thread at a time. The destructor blocks for at most the linger time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/net/curve_setup.h"
#include "dataflow/net/socket_security.h"
#include "dataflow/net/zmq_endpoint.h"
#include "dataflow/net/zmq_monitor.h"
#include "feeders/remote/receive/zmq_message.h"

namespace penstock::remote {

struct ZmqSocketOptions {
  /// A router's send fails with EHOSTUNREACH if the receiver has gone. A peer that connects to a
  /// router with a known routing id takes the place of the earlier peer.
  enum class Role : std::uint8_t { push, pull, dealer, router };
  Role role = Role::pull;
  bool bind = true;               ///< false: connect
  bool insecure = false;          ///< may bind without keys where other machines can connect
  net::CurveSetup curve{};        ///< default: plain text
  std::size_t server = 0;         ///< which of several server keys belongs to the peer
  std::int64_t hwm = 8;           ///< messages that wait in the socket, per peer
  std::int64_t max_message = -1;  ///< bytes; a peer that sends more is cut off; -1: no limit
  std::int64_t io_threads = 1;
  std::int64_t send_buffer = 0;  ///< least kernel buffer of an ipc:// connection, in bytes
};

class ZmqSocket {
 public:
  /// `reports` tells about peers that were turned away. Throws ConfigError if the endpoint is in
  /// use, not allowed or not available.
  ZmqSocket(const net::Endpoint& endpoint, const ZmqSocketOptions& options,
            net::PeerReports reports = {});
  ~ZmqSocket();

  /// The handle of libzmq's C interface.
  void* native() noexcept;
  /// The full address, with the port or file that libzmq chose for '*'.
  const std::string& address() const noexcept;

  enum class Wake : std::uint8_t { ready, stopped, late, other };
  /// Blocks until a message can be sent (push) or received (all other roles), one of the other
  /// descriptors is readable (-1: none), a stop is requested, or `limit` has passed. Throws
  /// ConfigError if the peer that this side connects to permanently refuses it.
  Wake wait(Nanoseconds limit, const std::stop_token& stop, int other_fd = -1, int another_fd = -1);
  /// Like wait(), for 1 to kMostTogether sockets of one role, until one of them is ready.
  static Wake wait_for_any(std::span<ZmqSocket* const> sockets, Nanoseconds limit,
                           const std::stop_token& stop, int other_fd = -1, int another_fd = -1);
  static constexpr std::size_t kMostTogether = 64;

  /// Counts of connections so far, of those that ended, and of attempts refused for a wrong key.
  /// Updated by each wait and look().
  struct Peers {
    std::int64_t joined = 0, left = 0, refused = 0;
  };
  Peers peers() const noexcept;
  /// Updates the counts without a wait, for callers that never wait. Throws what wait() throws.
  void look();

  /// Tells how many bytes of messages were received from this connection. Call after look().
  void took(int connection, std::int64_t bytes);
  /// Closes each TCP connection that sent more than `most` bytes outside received messages. Returns
  /// names for them. Works only for TCP.
  std::vector<std::string> cut_off_floods(std::int64_t most);

  /// Tells that this message was received, and by which connection.
  void note_received(const ZmqMessage& message);
  /// A peer that came and went without a message.
  struct MutePeer {
    std::string name;
    bool is_foreign = false;  ///< no handshake: it is no ZeroMQ socket that may talk to this one
  };
  /// Returns those since the last call. Call when all messages that arrived were passed to
  /// note_received(). Misses a connection that ended before it was looked at: libzmq tells neither
  /// its peer nor the reason.
  std::vector<MutePeer> mute_peers();

  /// Closes the connection of a message's sender. A producer with a key is not admitted again. One
  /// without a key may reconnect, as libzmq does by itself. False: it has already gone.
  bool cut_off(const net::MessageSender& sender);

  /// Whether the kernel holds bytes of ours that the receiver has not read.
  bool has_unread_bytes();

  /// How long unsent messages may stay when the socket closes. Default: they are dropped at once.
  void linger(std::chrono::milliseconds time);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// libzmq's context for all inproc:// endpoints, for threads of this process that push or pull
/// directly. The first call creates it; it never ends. Before that, ZmqSocket refuses inproc://
/// endpoints, since they can have no peer. Any thread.
void* inproc_context();

/// Checks an option that counts something. Throws ConfigError, which names the option.
std::int32_t checked_count(std::string_view name, std::int64_t value, std::int64_t most);

}  // namespace penstock::remote
