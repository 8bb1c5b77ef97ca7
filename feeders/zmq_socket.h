// SPDX-License-Identifier: Apache-2.0
// A PUSH, PULL, DEALER or ROUTER socket with a context of its own, opened with all checks made, and
// a wait on it that ends when a stop is requested. What is sent and received through it is its
// users' affair.
//
// Thread-safety: one thread at a time. The destructor blocks for at most the linger time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/curve_setup.h"
#include "dataflow/socket_security.h"
#include "dataflow/zmq_endpoint.h"
#include "feeders/zmq_message.h"

namespace penstock {

struct ZmqSocketOptions {
  /// A router is told, with EHOSTUNREACH, that whom it sends to is gone. Who connects to it with
  /// the routing id of another takes its place.
  enum class Role : std::uint8_t { push, pull, dealer, router };
  Role role = Role::pull;
  bool bind = true;               ///< else connect
  bool insecure = false;          ///< may bind without keys where other machines can reach it
  CurveSetup curve{};             ///< none: plain text
  std::size_t server = 0;         ///< which of several keys of servers is the peer's
  std::int64_t hwm = 8;           ///< messages that wait in it, per peer
  std::int64_t max_message = -1;  ///< bytes; peers that send more are cut off; -1: no limit
  std::int64_t io_threads = 1;
  std::int64_t send_buffer = 0;  ///< bytes that the kernel holds of an ipc:// connection, at least
};

class ZmqSocket {
 public:
  /// `reports` are of peers that were turned away. Throws ConfigError when
  /// the endpoint is in use, not allowed or not to be had.
  ZmqSocket(const Endpoint& endpoint, const ZmqSocketOptions& options, PeerReports reports = {});
  ~ZmqSocket();

  /// The handle of libzmq's C interface.
  void* native() noexcept;
  /// The address in full: with the port or file that libzmq chose for a '*'.
  const std::string& address() const noexcept;

  enum class Wake : std::uint8_t { ready, stopped, late, other };
  /// Blocks until a message can be sent (push) or received (all others), one of the other
  /// descriptors is readable (-1: none), a stop is requested, or `limit` has passed. Throws
  /// ConfigError where the peer that this side connects to will never let it in.
  Wake wait(Nanoseconds limit, const std::stop_token& stop, int other_fd = -1, int another_fd = -1);
  /// The same of several sockets of one role, until one of them is ready. At least one, at most
  /// kMostTogether.
  static Wake wait_for_any(std::span<ZmqSocket* const> sockets, Nanoseconds limit,
                           const std::stop_token& stop, int other_fd = -1, int another_fd = -1);
  static constexpr std::size_t kMostTogether = 64;

  /// Connections of peers so far, how many of them have ended, and how many tries to come in were
  /// refused for want of the right key. Up to date after each wait and look.
  struct Peers {
    std::int64_t joined = 0, left = 0, refused = 0;
  };
  Peers peers() const noexcept;
  /// For those who find a message each time and so never wait. Throws what wait does.
  void look();

  /// So many bytes of messages that came by this connection have been taken off the socket. After
  /// look.
  void took(int connection, std::int64_t bytes);
  /// Ends each TCP connection by which more than `most` bytes came that are in no message taken
  /// yet, and returns how they may be named. That is known of TCP alone.
  std::vector<std::string> cut_off_floods(std::int64_t most);

  /// Whoever received a message says by which connection it came.
  void heard(const ZmqMessage& message);
  /// How those may be named who came and went without a message since the last call, once all
  /// messages that have come were heard. Whose connection had ended before it was looked at is not
  /// among them: libzmq says neither who it was nor why it ended.
  std::vector<std::string> mute_peers();

  /// Ends the connection of whoever sent a message. A producer with a key is not let in again; one
  /// without may come back, as libzmq's do. False: it has gone by itself.
  bool cut_off(const MessageSender& sender);

  /// Whether bytes of ours lie in the kernel that their receiver has not read.
  bool has_unread_bytes();

  /// What was sent and not yet passed on is dropped at once when the socket closes, unless this
  /// gives it time.
  void linger(std::chrono::milliseconds time);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The context of all inproc:// endpoints, a handle of libzmq's, for threads of this process that
/// push or pull themselves. Made by the first call; it never ends. Until then ZmqSocket refuses
/// such endpoints, since nobody can be at the other end. Any thread.
void* inproc_context();

/// Checks an option that counts something and names it in its ConfigError.
std::int32_t checked_count(std::string_view name, std::int64_t value, std::int64_t most);

/// "0.2 s".
std::string seconds_text(Nanoseconds time);

}  // namespace penstock
