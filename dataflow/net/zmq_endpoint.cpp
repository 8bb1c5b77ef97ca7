// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/zmq_endpoint.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>

#include "dataflow/error.h"
#include "dataflow/net/shared_memory/unix_name.h"
#include "dataflow/net/socket_file.h"
#include "dataflow/options.h"

namespace penstock::net {
namespace {

/// The longest path in sockaddr_un, without the closing zero.
constexpr std::size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw ConfigError("ZeroMQ endpoint '{}' {}", text, why);
}

void parse_ipc(Endpoint& endpoint, std::string_view name) {
  if (name.empty()) refuse(endpoint.text, "has no name; expected ipc://PATH or ipc://@NAME");
  if (name.size() > kMaxPath) {
    refuse(endpoint.text,
           fmt::format(
               "has a name of {} bytes; expected at most {}; use a shorter path or ipc://@NAME",
               name.size(), kMaxPath));
  }
  endpoint.kind = name.front() == '@' ? Endpoint::Kind::abstract : Endpoint::Kind::file;
  endpoint.path = name;
}

void parse_tcp(Endpoint& endpoint, std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    refuse(endpoint.text, "has no port; expected tcp://HOST:PORT");
  }
  endpoint.kind = Endpoint::Kind::tcp;
  endpoint.host = address.substr(0, colon);
  const std::string_view port = address.substr(colon + 1);
  if (endpoint.host == "localhost") {  // libzmq binds to addresses and interfaces only
    endpoint.host = "127.0.0.1";
    endpoint.text = "tcp://127.0.0.1:" + std::string(port);
  }
  if (port == "*") return;
  const std::int64_t number = parse_integer(port, "the port of " + endpoint.text);
  if (number < 1 || number > 65535) {
    refuse(endpoint.text, fmt::format("has port {}; expected 1 to 65535", port));
  }
}

bool is_loopback(const std::string& host) {
  return host == "lo" || host == "[::1]" || host.starts_with("127.");
}

/// A name that one process has at a time, as long as the descriptor is open. It leaves no file
/// behind, and a lock on the folder could be somebody else's.
FileDescriptor take_turn(const Endpoint& endpoint) {
  constexpr int kTries = 400;
  constexpr useconds_t kPause = 5000;
  const std::string path = std::filesystem::absolute(endpoint.path).lexically_normal().native();
  const auto address =
      abstract_address(fmt::format("@penstock-binds-{:x}", std::hash<std::string>()(path))).value();
  FileDescriptor turn(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (int i = 0; turn && i < kTries; ++i) {
    if (bind(turn.get(), address.get(), address.bytes) == 0) return turn;
    if (errno != EADDRINUSE) return FileDescriptor();  // then there is no such guard
    usleep(kPause);
  }
  refuse(endpoint.text, "is just being bound by another process; give another endpoint");
}

}  // namespace

Endpoint parse_endpoint(std::string_view text) {
  Endpoint endpoint;
  endpoint.text = text;
  if (text.starts_with("ipc://")) {
    parse_ipc(endpoint, text.substr(6));
  } else if (text.starts_with("tcp://")) {
    parse_tcp(endpoint, text.substr(6));
  } else if (text.starts_with("inproc://")) {
    if (text == "inproc://") refuse(text, "has no name; expected inproc://NAME");
    endpoint.kind = Endpoint::Kind::inproc;
  } else {
    refuse(text,
           "has an unsupported transport; expected ipc://PATH, ipc://@NAME or tcp://HOST:PORT");
  }
  return endpoint;
}

FileDescriptor check_bindable(const Endpoint& endpoint, bool anywhere) {
  if (endpoint.kind == Endpoint::Kind::tcp && !is_loopback(endpoint.host) && !anywhere) {
    refuse(endpoint.text,
           "would accept data from every machine that can connect, unauthenticated and in plain "
           "text; give keys with curve_secret and curve_allow (--curve-secret, --curve-allow), "
           "bind to 127.0.0.1, or accept that with insecure=true (--insecure)");
  }
  if (endpoint.kind != Endpoint::Kind::file || endpoint.path == "*") return FileDescriptor();
  FileDescriptor turn = take_turn(endpoint);
  const Listener listener = find_listener(endpoint.path);
  if (listener == Listener::live) {
    refuse(endpoint.text,
           "is already in use by another process; stop that one, or give another endpoint");
  }
  if (listener == Listener::other) {
    refuse(endpoint.text, "names a file that is not a socket; give a path that does not exist");
  }
  if (listener == Listener::dead) unlink(endpoint.path.c_str());  // left by a killed process
  return turn;
}

std::string describe(const Endpoint& endpoint) {
  if (endpoint.kind != Endpoint::Kind::file || endpoint.path.front() == '/') return endpoint.text;
  std::error_code ignored;
  return fmt::format("{} (in {})", endpoint.text, std::filesystem::current_path(ignored).string());
}

}  // namespace penstock::net
