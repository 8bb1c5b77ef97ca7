// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/liveness/frame_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "dataflow/error.h"
#include "trainer/cluster/host.h"

namespace penstock::liveness {
namespace {

constexpr std::string_view kLocal = "local:";
constexpr int kBacklog = 128;

int new_socket(int family) {
  const int file = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (file < 0) throw Unavailable("opening a socket: {}", std::strerror(errno));
  const int one = 1;
  if (family != AF_UNIX) setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return file;
}

/// Uses the abstract namespace, which drops a name with its last socket.
socklen_t fill(sockaddr_un& address, std::string_view name) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

/// An address of either family. `port` in host byte order.
struct NetworkAddress {
  sockaddr_storage bytes{};
  socklen_t length = sizeof(sockaddr_storage);

  NetworkAddress() = default;
  NetworkAddress(const in_addr& host, std::uint16_t port) : length(sizeof(sockaddr_in)) {
    bytes.ss_family = AF_INET;
    v4().sin_addr = host;
    v4().sin_port = htons(port);
  }
  NetworkAddress(const in6_addr& host, std::uint16_t port) : length(sizeof(sockaddr_in6)) {
    bytes.ss_family = AF_INET6;
    v6().sin6_addr = host;
    v6().sin6_port = htons(port);
  }
  sockaddr* any() noexcept { return reinterpret_cast<sockaddr*>(&bytes); }
  sockaddr_in& v4() noexcept { return *reinterpret_cast<sockaddr_in*>(&bytes); }
  sockaddr_in6& v6() noexcept { return *reinterpret_cast<sockaddr_in6*>(&bytes); }
  std::uint16_t port() noexcept {
    return ntohs(bytes.ss_family == AF_INET6 ? v6().sin6_port : v4().sin_port);
  }
};

/// Parses "192.0.2.1:4000" and "[2001:db8::1]:4000". Nothing: the text has another form.
std::optional<NetworkAddress> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data() + colon + 1, end, port).ptr != end) return std::nullopt;
  const std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    in6_addr v6{};
    const std::string inside = host.substr(1, host.size() - 2);
    if (inet_pton(AF_INET6, inside.c_str(), &v6) == 1) return NetworkAddress(v6, port);
    return std::nullopt;
  }
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return NetworkAddress(v4, port);
  return std::nullopt;
}

/// Where a listener listens.
NetworkAddress listening_at(bool loopback, std::uint16_t port, bool ipv6) {
  if (ipv6) return {loopback ? in6addr_loopback : in6addr_any, port};
  return {in_addr{htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY)}, port};
}

bool connected(int file, const sockaddr* address, socklen_t length, Nanoseconds patience) {
  if (::connect(file, address, length) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd wait{file, POLLOUT, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience);
  if (poll(&wait, 1, static_cast<int>(ms.count())) != 1) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(file, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

/// Of all interfaces that are up, without loopback.
std::string addresses_with(std::uint16_t port) {
  std::string text;
  for (const std::string& address : cluster::network_addresses()) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", address, port);
  }
  return text;
}

}  // namespace

void Frame::set(const cluster::RankState& state) noexcept {
  phase = state.phase;
  waiting = state.waiting ? 1 : 0;
  step = state.step;
  warm_up = state.warm_up;
  meetings = state.meetings;
}

cluster::RankState Frame::state() const noexcept {
  return {.phase = phase,
          .waiting = waiting != 0,
          .step = step,
          .warm_up = warm_up,
          .meetings = meetings};
}

std::string random_key() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Unavailable("the system gave no random numbers for the key of the ranks");
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::array<char, 64> padded(std::string_view text) {
  std::array<char, 64> bytes{};
  std::copy_n(text.begin(), std::min(text.size(), bytes.size()), bytes.begin());
  return bytes;
}

std::string unpadded(const std::array<char, 64>& text) {
  return {text.begin(), std::find(text.begin(), text.end(), '\0')};
}

// ---- FrameSocket ------------------------------------------------------------

FrameSocket FrameSocket::connect(const std::string& address, Nanoseconds patience) {
  if (address.starts_with(kLocal)) {
    FrameSocket socket(new_socket(AF_UNIX));
    sockaddr_un name;
    const socklen_t length = fill(name, std::string_view(address).substr(kLocal.size()));
    const auto* const any = reinterpret_cast<const sockaddr*>(&name);
    return connected(socket.file(), any, length, patience) ? std::move(socket) : FrameSocket();
  }
  std::istringstream list(address);
  for (std::string each; list >> each;) {
    std::optional<NetworkAddress> name = parse_address(each);
    if (!name) continue;
    FrameSocket socket(new_socket(name->bytes.ss_family));
    if (connected(socket.file(), name->any(), name->length, patience)) return socket;
  }
  return FrameSocket();
}

void FrameSocket::send(const Frame& frame) noexcept {
  if (!file_ || !writable_) return;
  const ssize_t sent = ::send(file_.get(), &frame, sizeof frame, MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(sizeof frame)) return;
  // A part of a frame would put the peer out of step. Frames that the peer sent before can still be
  // read.
  if (sent >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) writable_ = false;
}

std::optional<Frame> FrameSocket::receive() {
  while (file_ && received_.size() < sizeof(Frame)) {
    char bytes[8 * sizeof(Frame)];
    const ssize_t count = ::recv(file_.get(), bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    if (count <= 0) {
      close();
    } else {
      received_.append(bytes, static_cast<std::size_t>(count));
    }
  }
  if (received_.size() < sizeof(Frame)) return std::nullopt;
  Frame frame;
  std::memcpy(&frame, received_.data(), sizeof frame);
  received_.erase(0, sizeof frame);
  if (frame.magic == Frame::kMagic && frame.kind <= Frame::Kind::here &&
      frame.phase <= cluster::RankPhase::leaving) {
    return frame;
  }
  close();
  return std::nullopt;
}

std::optional<std::size_t> FrameSocket::send_some(std::span<const std::byte> bytes,
                                                  bool more) const noexcept {
  const int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0);
  const ssize_t sent = ::send(file_.get(), bytes.data(), bytes.size(), flags);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return std::nullopt;
  return 0;
}

std::optional<std::size_t> FrameSocket::receive_some(std::span<std::byte> bytes) noexcept {
  if (bytes.empty()) return 0;
  if (!received_.empty()) {  // arrived together with a frame
    const std::size_t count = std::min(bytes.size(), received_.size());
    std::memcpy(bytes.data(), received_.data(), count);
    received_.erase(0, count);
    return count;
  }
  const ssize_t count = ::recv(file_.get(), bytes.data(), bytes.size(), 0);
  if (count > 0) return static_cast<std::size_t>(count);
  if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    return std::nullopt;
  }
  return 0;
}

std::string FrameSocket::own_address() const {
  NetworkAddress own;
  if (getsockname(file_.get(), own.any(), &own.length) != 0) return {};
  const bool ipv6 = own.bytes.ss_family == AF_INET6;
  const void* bytes = ipv6 ? static_cast<const void*>(&own.v6().sin6_addr) : &own.v4().sin_addr;
  int family = own.bytes.ss_family;
  if (ipv6 && IN6_IS_ADDR_V4MAPPED(&own.v6().sin6_addr)) {  // a peer of IPv4
    bytes = &own.v6().sin6_addr.s6_addr[12];
    family = AF_INET;
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (inet_ntop(family, bytes, text.data(), text.size()) == nullptr) return {};
  return family == AF_INET6 ? fmt::format("[{}]", text.data()) : text.data();
}

// ---- FrameListener ----------------------------------------------------------

std::string FrameListener::local_address(std::string_view name) {
  return fmt::format("{}{}", kLocal, name);
}

FrameListener FrameListener::local(std::string_view name) {
  FrameListener listener(new_socket(AF_UNIX), local_address(name));
  sockaddr_un address;
  const socklen_t length = fill(address, name);
  if (bind(listener.file(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener.file(), kBacklog) != 0) {
    throw Unavailable(
        "listening for the other ranks as '{}': {}; check whether another run of that name is "
        "active",
        name, std::strerror(errno));
  }
  return listener;
}

FrameListener FrameListener::tcp(bool loopback, std::uint16_t fixed, bool ipv6) {
  FrameListener listener(new_socket(ipv6 ? AF_INET6 : AF_INET), "");
  const int one = 1, zero = 0;
  // A job that has just ended leaves its port in a state of waiting.
  if (fixed != 0) setsockopt(listener.file(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (ipv6) setsockopt(listener.file(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
  NetworkAddress address = listening_at(loopback, fixed, ipv6);
  if (bind(listener.file(), address.any(), address.length) != 0 ||
      listen(listener.file(), kBacklog) != 0 || listener.port() == 0) {
    throw Unavailable("listening for the other ranks over TCP, port {}: {}; choose a free port",
                      fixed, std::strerror(errno));
  }
  const std::uint16_t port = listener.port();
  listener.address_ =
      !loopback ? addresses_with(port) : fmt::format("{}:{}", ipv6 ? "[::1]" : "127.0.0.1", port);
  return listener;
}

std::uint16_t FrameListener::port() const noexcept {
  NetworkAddress address;
  return getsockname(file_.get(), address.any(), &address.length) == 0 ? address.port() : 0;
}

FrameSocket FrameListener::accept() {
  FrameSocket socket(accept4(file_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  ucred peer{};
  socklen_t length = sizeof peer;
  if (socket.is_open() && address_.starts_with(kLocal) &&
      (getsockopt(socket.file(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
       peer.uid != geteuid())) {
    socket.close();
  }
  return socket;
}

}  // namespace penstock::liveness
