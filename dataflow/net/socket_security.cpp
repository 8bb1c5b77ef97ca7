// SPDX-License-Identifier: Apache-2.0
#include "dataflow/socket_security.h"

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "dataflow/error.h"

namespace penstock {
namespace {

/// Sentences about peers; more are counted.
constexpr std::size_t kMostNamed = 16;
/// Handshakes in a row that a server ended without a word before its client gives up: a second or
/// two at libzmq's pace, time for a server that was only being restarted.
constexpr int kMostFailures = 10;

std::string fault_at_listener(HandshakeFault fault) {
  switch (fault) {
    case HandshakeFault::mechanism:
      return "it has no CURVE keys; start it with --curve-secret and --curve-server-key, or keep "
             "it away";
    case HandshakeFault::key:
      return "it expects a server with another key; give it this side's public file as "
             "--curve-server-key";
    default:
      return "it ended the handshake, or did not go on with it: it has no CURVE keys, or speaks "
             "no ZeroMQ";
  }
}

}  // namespace

/// Names each peer once, whichever thread sees it.
struct SocketSecurity::Log {
  void add(const std::string& sentence) {
    refused.fetch_add(1, std::memory_order_relaxed);
    if (reports.refused) reports.refused();
    const std::lock_guard lock(mutex);
    if (said.size() > kMostNamed || !said.insert(sentence).second || !reports.say) return;
    reports.say(said.size() > kMostNamed ? "more peers are refused, and not named" : sentence);
  }

  const PeerReports reports;
  std::atomic<std::int64_t> refused{0};
  std::mutex mutex;
  std::set<std::string> said;
};

SocketSecurity::SocketSecurity(void* context, CurveSetup curve, PeerReports reports)
    : curve_(std::move(curve)), log_(std::make_unique<Log>(std::move(reports))) {
  if (curve_.role != CurveSetup::Role::server) return;
  gate_.emplace(context, curve_.admission,
                [&log = *log_](const std::string& key, const std::string& address) {
                  log.add("refused " + readable_address(address) + ": its key " + key +
                          " may not come in; add its public file to what curve_allow "
                          "(--curve-allow) names, or keep it away");
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
  // The gate has named whom it did not admit. Without keys nobody is refused for lack of one.
  if (!curve_ || !event.fault) return;
  const bool named_by_gate = gate_ && *event.fault == HandshakeFault::not_admitted;
  if (!named_by_gate) log_->add("refused " + event.peer + ": " + fault_at_listener(*event.fault));
}

void SocketSecurity::see_at_connector(const ConnectionEvent& event, const std::string& endpoint,
                                      int& failures) {
  if (event.kind == ConnectionEvent::Kind::joined) failures = 0;
  if (!event.fault) return;
  const std::string to = "connecting to " + endpoint + ": ";
  if (*event.fault == HandshakeFault::mechanism) {
    throw ConfigError(to + (curve_ ? "it has no CURVE keys; start it with keys, or this side "
                                     "without curve_secret (--curve-secret)"
                                   : "it takes only those with CURVE keys; give curve_secret "
                                     "(--curve-secret) and curve_server_key "
                                     "(--curve-server-key)"));
  }
  if (!curve_) return;
  if (*event.fault == HandshakeFault::not_admitted && !gate_) {
    throw ConfigError(to + "it does not admit our key " + curve_.own.public_key +
                      "; add our public file to what its --curve-allow names");
  }
  if (*event.fault == HandshakeFault::key) {
    throw ConfigError(to +
                      "it expects a server with another key; give it this side's public "
                      "file as --curve-server-key");
  }
  if (++failures < kMostFailures) return;
  throw ConfigError(to + "it ended " + std::to_string(failures) +
                    " handshakes in a row without a word; " +
                    (gate_ ? "see above whom this side refused"
                           : "see that it has CURVE keys, and that curve_server_key "
                             "(--curve-server-key) is its public file"));
}

void SocketSecurity::ban(const std::string& public_key) {
  if (gate_ && !public_key.empty()) gate_->ban(public_key);
}

std::int64_t SocketSecurity::refused() const noexcept { return log_->refused.load(); }

}  // namespace penstock
