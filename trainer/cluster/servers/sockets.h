// SPDX-License-Identifier: Apache-2.0
// The ZeroMQ sockets of workers and parameter servers: a ROUTER at each server, and a DEALER at
// each worker for each server. Data are sent without a copy and stay where they were received.
//
// Thread-safety: one thread for each socket; any thread may call EventFd::signal.
#pragma once

#include <cstdint>
#include <functional>
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
#include "trainer/cluster/servers/server.h"

namespace penstock::cluster {

/// Which peers may use a socket.
struct Security {
  bool insecure = false;    ///< may bind to addresses that other machines can reach, in plain text
  net::CurveSetup curve{};  ///< server keys (RouterSocket) or client keys (DealerSockets), or none
  net::PeerReports reports{};  ///< for peers that a server refused
};

/// Data that are sent without a copy. libzmq calls `sent` with `hint` on one of its threads once
/// the data are no longer read. Null: the data stay.
struct Borrowed {
  void (*sent)(void* data, void* hint) = nullptr;
  void* hint = nullptr;
};

class RouterSocket {
 public:
  /// `address` is HOST:PORT. Throws ConfigError if it cannot be bound or has the wrong keys.
  RouterSocket(const std::string& address, const Security& security, int io_threads);
  ~RouterSocket();
  /// Waits until a message arrives, a connection ends, `wake` is signalled, or `limit` passes.
  void wait(Nanoseconds limit, const EventFd& wake);
  /// False: there is no message.
  bool receive(Server::Received& message);
  /// The connections that ended since the last call.
  std::vector<int> ended_connections();
  /// Connection attempts of peers without the right key.
  std::int64_t refused() const noexcept;
  /// Drops the message if the peer is gone. `stays`: the data are not copied.
  void send(const std::string& peer, const ServerHeader& header, std::span<const std::byte> data,
            bool stays);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// A worker's sockets, one for each server.
class DealerSockets {
 public:
  /// Connects; servers need not run yet. Throws ConfigError if the keys are not a client's.
  DealerSockets(std::span<const std::string> addresses, const Security& security, int io_threads);
  /// Waits up to `kLinger` for sent messages to leave.
  ~DealerSockets();
  static constexpr std::chrono::milliseconds kLinger{500};

  void wait(Nanoseconds limit, const EventFd& wake);
  /// Takes at most one message from each socket; `take` gets the server, the header's bytes and the
  /// data. False: there was no message.
  using Take =
      std::function<void(std::size_t server, std::span<const std::byte> header, Frame data)>;
  bool receive(const Take& take);
  /// Returns the server whose connection has ended, or -1. Throws ConfigError if a server will
  /// never admit this worker.
  int ended_server();
  /// Blocks only to allocate and copy memory.
  void send(std::size_t server, const ServerHeader& header, std::span<const std::byte> data,
            const Borrowed* borrowed);
  /// Drops messages that have not left yet. Nothing can be sent after it.
  void drop();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace penstock::cluster
