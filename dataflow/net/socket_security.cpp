// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/socket_security.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "dataflow/error.h"

namespace penstock::net {
namespace {

/// How many refused peers are reported by name; the rest are only counted.
constexpr std::size_t kMostNamed = 16;
/// A client gives up after this many handshakes in a row that the server ended without an answer.
/// At libzmq's pace this takes a second or two, enough for a server to restart.
constexpr int kMostFailures = 10;

std::string reason_of(HandshakeFault fault) {
  switch (fault) {
    case HandshakeFault::mechanism:
      return "it has no CURVE keys; start it with --curve-secret and --curve-server-key, or stop "
             "it";
    case HandshakeFault::key:
      return "it expects a server with another key; give it this side's public file as "
             "--curve-server-key";
    default:
      return "it did not complete the handshake: it has no CURVE keys, or does not speak ZeroMQ";
  }
}

}  // namespace

/// Reports each peer once, whichever thread sees it.
struct SocketSecurity::Log {
  void add(const std::string& sentence) {
    refused.fetch_add(1, std::memory_order_relaxed);
    if (reports.refused) reports.refused();
    const std::lock_guard lock(mutex);
    if (said.size() > kMostNamed || !said.insert(sentence).second || !reports.say) return;
    reports.say(said.size() > kMostNamed ? "further refused peers are not listed" : sentence);
  }

  const PeerReports reports;
  std::atomic<std::int64_t> refused{0};
  std::mutex mutex{};
  std::set<std::string> said{};
};

SocketSecurity::SocketSecurity(void* context, CurveSetup curve, PeerReports reports)
    : curve_(std::move(curve)), log_(new Log{std::move(reports)}) {
  if (curve_.role != CurveSetup::Role::server) return;
  gate_.emplace(context, curve_.admission,
                [&log = *log_](const std::string& key, const std::string& address) {
                  log.add(
                      fmt::format("refused {}: its key {} is not accepted; add its public file to "
                                  "curve_allow (--curve-allow), or stop that peer",
                                  readable_address(address), key));
                });
}
SocketSecurity::~SocketSecurity() = default;

void SocketSecurity::set_up(void* socket, std::size_t server) {
  switch (curve_.role) {
    case CurveSetup::Role::none:
      return;
    case CurveSetup::Role::server:
      return gate_->guard(socket, curve_.own);
    case CurveSetup::Role::client:
      return make_curve_client(socket, curve_.own,
                               curve_.server_keys[curve_.server_keys.size() == 1 ? 0 : server]);
  }
}

void SocketSecurity::see_at_listener(const ConnectionEvent& event) {
  // The gate has already reported the peers that it refused. Without keys no peer is refused for
  // lack of one.
  if (!curve_ || !event.fault) return;
  const bool named_by_gate = gate_ && *event.fault == HandshakeFault::not_admitted;
  if (!named_by_gate) log_->add(fmt::format("refused {}: {}", event.peer, reason_of(*event.fault)));
}

void SocketSecurity::see_at_connector(const ConnectionEvent& event, const std::string& endpoint,
                                      int& failures) {
  if (event.kind == ConnectionEvent::Kind::joined) failures = 0;
  if (!event.fault) return;
  const std::string to = fmt::format("connecting to {}: ", endpoint);
  if (*event.fault == HandshakeFault::mechanism) {
    throw ConfigError(to + (curve_ ? "it has no CURVE keys; start it with keys, or this side "
                                     "without curve_secret (--curve-secret)"
                                   : "it accepts only peers with CURVE keys; give curve_secret "
                                     "(--curve-secret) and curve_server_key (--curve-server-key)"));
  }
  if (!curve_) return;
  if (*event.fault == HandshakeFault::not_admitted && !gate_) {
    throw ConfigError(
        "{}it does not accept the key of this side, {}; add this side's public file to its "
        "--curve-allow",
        to, curve_.own.public_key);
  }
  if (*event.fault == HandshakeFault::key) {
    throw ConfigError(to + reason_of(HandshakeFault::key));
  }
  if (++failures < kMostFailures) return;
  throw ConfigError("{}it ended {} handshakes in a row without an error message; {}", to, failures,
                    gate_ ? "the peers that this side refused are listed above"
                          : "check that it has CURVE keys, and that curve_server_key "
                            "(--curve-server-key) is its public file");
}

void SocketSecurity::ban(const std::string& public_key) {
  if (gate_ && !public_key.empty()) gate_->ban(public_key);
}

std::int64_t SocketSecurity::refused() const noexcept { return log_->refused.load(); }

}  // namespace penstock::net
