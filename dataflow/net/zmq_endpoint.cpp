// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/zmq_endpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "dataflow/error.h"
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
  // A lock on the folder leaves no file behind. Without the folder, binding reports the reason.
  const std::filesystem::path folder = std::filesystem::path(endpoint.path).parent_path();
  FileDescriptor turn(
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (turn) flock(turn.get(), LOCK_EX);
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
