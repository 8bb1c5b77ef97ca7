// SPDX-License-Identifier: Apache-2.0
// Holds the keys of all sockets of a context, and handles peers without the right keys. A socket
// that listens refuses and reports them, and continues. A socket that connects gives up once it
// knows that it will never be accepted.
//
// Thread-safety: one thread at a time; reports run on that thread and on the gate's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dataflow/net/curve_setup.h"
#include "dataflow/net/zmq_monitor.h"

namespace penstock::net {

/// Callbacks about peers. Those about refused peers may run on any thread; `left` runs on the
/// thread that uses the socket.
struct PeerReports {
  std::function<void()> refused{};                     ///< once for each attempt
  std::function<void(const std::string& text)> say{};  ///< once for each refused peer
  /// A connected peer has left; `others` peers are still connected.
  std::function<void(const std::string& peer, std::int64_t others)> left{};
};

class SocketSecurity {
 public:
  /// The context must outlive this object, which must outlive all its sockets. Throws ConfigError.
  SocketSecurity(void* context, CurveSetup curve, PeerReports reports);
  ~SocketSecurity();

  /// Gives a socket its keys. Call it before the socket binds or connects. `server` is the index of
  /// the server to which it connects, if there are several.
  void set_up(void* socket, std::size_t server = 0);

  /// Call it with every event of a socket that listens.
  void see_at_listener(const ConnectionEvent& event);
  /// Call it with every event of a socket that connects to `endpoint`. `failures` counts its failed
  /// handshakes since the last successful one. Throws ConfigError with advice if further attempts
  /// cannot succeed.
  void see_at_connector(const ConnectionEvent& event, const std::string& endpoint, int& failures);

  /// Refuses this client from now on. Does nothing if the key is empty. Only for servers.
  void ban(const std::string& public_key);
  /// The number of attempts by refused peers.
  std::int64_t refused() const noexcept;

 private:
  struct Log;
  const CurveSetup curve_;
  const std::unique_ptr<Log> log_;
  std::optional<CurveGate> gate_;
};

}  // namespace penstock::net
