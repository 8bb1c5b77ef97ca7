// SPDX-License-Identifier: Apache-2.0
// The keys of all sockets of a context, and what becomes of peers without the right ones: a socket
// that listens turns them away, names them and goes on; one that connects gives up once it knows
// that it will never come in.
//
// Thread-safety: one thread at a time; reports come on it and on the gate's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dataflow/curve_setup.h"
#include "dataflow/zmq_monitor.h"

namespace penstock {

/// What is told of peers: of those that are turned away on any thread, of those that leave on the
/// thread that uses the socket.
struct PeerReports {
  std::function<void()> refused{};                     ///< once for each try
  std::function<void(const std::string& text)> say{};  ///< once for each peer that is turned away
  /// A peer that was connected has left, and so many are still connected.
  std::function<void(const std::string& peer, std::int64_t others)> left{};
};

class SocketSecurity {
 public:
  /// The context outlives this object, which outlives all its sockets. Throws ConfigError.
  SocketSecurity(void* context, CurveSetup curve, PeerReports reports);
  ~SocketSecurity();

  /// Gives a socket its keys, before it binds or connects. `server`: which of several servers it
  /// connects to.
  void set_up(void* socket, std::size_t server = 0);

  /// Has to see the events of a socket that listens.
  void see_at_listener(const ConnectionEvent& event);
  /// The same of a socket that connects to `endpoint`; `failures` counts its handshakes that came
  /// to nothing since the last that did not. Throws ConfigError, which says what to do, where no
  /// other try will come to more.
  void see_at_connector(const ConnectionEvent& event, const std::string& endpoint, int& failures);

  /// Turns this client away from now on; nothing where it has no key. Of a server alone.
  void ban(const std::string& public_key);
  /// Tries of peers that were turned away.
  std::int64_t refused() const noexcept;

 private:
  struct Log;
  const CurveSetup curve_;
  const std::unique_ptr<Log> log_;
  std::optional<CurveGate> gate_;
};

}  // namespace penstock
