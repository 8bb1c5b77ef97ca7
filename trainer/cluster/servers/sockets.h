// SPDX-License-Identifier: Apache-2.0
// The ZeroMQ sockets of workers and parameter servers: a ROUTER at each server, a DEALER of each
// worker for each of them. Data are sent from where they lie and kept where they were received.
//
// Thread-safety: one thread for each socket; Wake::signal from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/curve_setup.h"
#include "dataflow/socket_security.h"
#include "trainer/servers/frame.h"
#include "trainer/servers/message.h"
#include "trainer/servers/server.h"

namespace penstock {

/// Who may talk to a socket.
struct Security {
  bool insecure = false;  ///< may bind where other machines can reach it, in plain text
  CurveSetup curve{};     ///< of a server's socket a CURVE server, of workers' clients, or none
  PeerReports reports{};  ///< of peers that a server turned away
};

/// Ends a wait from another thread.
class WakeSignal {
 public:
  WakeSignal();
  WakeSignal(const WakeSignal&) = delete;
  WakeSignal& operator=(const WakeSignal&) = delete;
  ~WakeSignal();
  void signal() const noexcept;
  void clear() const noexcept;
  int fd() const noexcept { return fd_; }

 private:
  const int fd_;
};

/// Data that are sent from where they lie: `sent` is called with `hint`, on a thread of libzmq's,
/// once nobody reads them any more. Null: they stay.
struct Borrowed {
  void (*sent)(void* data, void* hint) = nullptr;
  void* hint = nullptr;
};

class RouterSocket {
 public:
  /// `address` is HOST:PORT. Throws ConfigError where it cannot be bound, or has the wrong keys.
  RouterSocket(const std::string& address, const Security& security, int io_threads);
  ~RouterSocket();
  /// Until something can be received, a connection has ended, `wake` was signalled, or `limit`
  /// passed.
  void wait(Nanoseconds limit, const WakeSignal& wake);
  /// False: there is none.
  bool receive(Server::Received& message);
  /// Those that ended since the last call.
  std::vector<int> ended_connections();
  /// Tries of peers without the right key.
  std::int64_t refused() const noexcept;
  /// Whoever has gone gets nothing. `stays`: not copied.
  void send(const std::string& peer, const ServerHeader& header, std::span<const std::byte> data,
            bool stays);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// A worker's sockets, one for each server.
class DealerSockets {
 public:
  /// Connects; servers need not be there yet. Throws ConfigError for keys that are not a client's.
  DealerSockets(std::span<const std::string> addresses, const Security& security, int io_threads);
  /// Gives what was sent `kLinger` to leave.
  ~DealerSockets();
  static constexpr std::chrono::milliseconds kLinger{500};

  void wait(Nanoseconds limit, const WakeSignal& wake);
  /// Takes what there is of one message from each socket; `take` gets the server, the header's
  /// bytes and the data. False: there was nothing.
  using Take =
      std::function<void(std::size_t server, std::span<const std::byte> header, Frame data)>;
  bool receive(const Take& take);
  /// The server whose connection has ended, or -1. Throws ConfigError where one will never let this
  /// worker in.
  int ended_server();
  /// Blocks no longer than memory takes.
  void send(std::size_t server, const ServerHeader& header, std::span<const std::byte> data,
            const Borrowed* borrowed);
  /// Forgets what has not left yet; nothing more can be sent.
  void drop();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace penstock
