// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/zmq_socket.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/machine/workers.h"
#include "dataflow/net/socket_file.h"

namespace penstock::remote {
namespace {

/// Longest wait, so that sums of times do not overflow.
constexpr Nanoseconds kLongest = std::chrono::hours(24 * 365);

/// Bytes around the frames of a message, at most four frames: lengths, and the boxes of CURVE.
constexpr std::int64_t kAroundMessage = 256;

/// How many mute peers are kept until the caller asks for them.
constexpr std::size_t kMostMute = 64;

/// How long libzmq may take to notice closed connections.
constexpr std::chrono::seconds kHangUp{1};

/// By ZmqSocketOptions::Role.
constexpr int kTypes[] = {ZMQ_PUSH, ZMQ_PULL, ZMQ_DEALER, ZMQ_ROUTER};

[[noreturn]] void refuse(const net::Endpoint& endpoint, bool bind, const zmq::error_t& error) {
  std::string text =
      fmt::format("cannot {}{}", bind ? "bind " : "connect to ", net::describe(endpoint));
  switch (error.num()) {
    case EADDRINUSE:
      text += fmt::format(
          ": it is already in use by another {}, or give another endpoint",
          endpoint.kind == net::Endpoint::Kind::inproc ? "socket" : "process; stop that one");
      break;
    case ENODEV:
      text += ": '" + endpoint.host +
              "' is no address of this machine; give its IP address, its network interface, or *";
      break;
    case ENOENT:
      text += ": no such folder; make it, or give another endpoint";
      break;
    default:
      text += fmt::format(": {}; give another endpoint", error.what());
  }
  throw ConfigError(text);
}

/// Bytes that a TCP connection has received so far; 0: not TCP.
std::int64_t arrived_over_tcp(int connection) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(connection, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received) return 0;
  return static_cast<std::int64_t>(info.tcpi_bytes_received);
}

/// Bytes that the kernel has received and libzmq has not read.
std::int64_t unread_over_tcp(int connection) {
  int unread = 0;
  return ioctl(connection, SIOCINQ, &unread) == 0 ? unread : 0;
}

/// For all inproc:// endpoints; null: no caller asked for it yet.
std::atomic<zmq::context_t*> shared_context{nullptr};

/// inproc:// sockets share one context; every other socket gets a new one.
std::shared_ptr<zmq::context_t> context_for(const net::Endpoint& endpoint,
                                            const ZmqSocketOptions& options) {
  if (endpoint.kind != net::Endpoint::Kind::inproc) {
    // libzmq aborts the process if it cannot start its threads: I/O threads and one that reaps.
    expect_threads(static_cast<std::int32_t>(options.io_threads) + 1);
    return std::make_shared<zmq::context_t>(static_cast<int>(options.io_threads));
  }
  const std::string text = fmt::format("ZeroMQ endpoint '{}' ", endpoint.text);
  if (shared_context == nullptr) {
    throw ConfigError(text +
                      "reaches only threads of this process, but none has called inproc_context(); "
                      "expected ipc://PATH, ipc://@NAME or tcp://HOST:PORT (a program with threads "
                      "that push calls inproc_context() first)");
  }
  if (options.curve) throw ConfigError(text + "stays in this process and takes no CURVE keys");
  return {shared_context.load(), [](zmq::context_t*) {}};
}

}  // namespace

void* inproc_context() {
  static zmq::context_t* const made = new zmq::context_t();  // NOLINT: threads may outlive main
  shared_context = made;
  return made->handle();
}

struct ZmqSocket::State {
  State(const net::Endpoint& endpoint, const ZmqSocketOptions& options, net::PeerReports reports)
      : context(context_for(endpoint, options)),
        role(options.role),
        bind(options.bind),
        send_buffer(options.send_buffer),
        left(reports.left),
        security(context->handle(), options.curve, std::move(reports)),
        socket(*context, kTypes[static_cast<std::size_t>(options.role)]),
        monitor(context->handle(), socket.handle()) {
    net::bound_socket(socket.handle(), options.max_message);
    security.set_up(socket.handle(), options.server);
    socket.set(zmq::sockopt::rcvhwm, static_cast<int>(options.hwm));
    socket.set(zmq::sockopt::sndhwm, static_cast<int>(options.hwm));
    if (role == ZmqSocketOptions::Role::router) {
      socket.set(zmq::sockopt::router_mandatory, 1);
      socket.set(zmq::sockopt::router_handover, 1);
    }
    // Queue messages only for connected peers, not for one that may never come.
    socket.set(zmq::sockopt::immediate, 1);
    if (endpoint.host.starts_with('[')) socket.set(zmq::sockopt::ipv6, 1);
    try {
      bind ? socket.bind(endpoint.text) : socket.connect(endpoint.text);
    } catch (const zmq::error_t& error) {
      refuse(endpoint, bind, error);
    }
    address = socket.get(zmq::sockopt::last_endpoint);
    if (bind) file.emplace(address);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// `judges`: name peers that are turned away, and report a peer that permanently refuses us.
  void count_peers(bool judges = true) {
    while (const std::optional<net::ConnectionEvent> event = monitor.next()) {
      switch (event->kind) {
        case net::ConnectionEvent::Kind::opened:
          connections[event->connection] = 0;
          mute.insert(event->connection);
          ++handshaking;
          if (send_buffer > 0) enlarge_send_buffer(event->connection, send_buffer);
          break;
        case net::ConnectionEvent::Kind::joined:
          ++peers.joined;
          handshaking = std::max(0, handshaking - 1);
          break;
        case net::ConnectionEvent::Kind::ended:
          const bool known = connections.erase(event->connection) > 0;
          const bool is_mute = mute.erase(event->connection) > 0;
          // libzmq does not tell whose handshake is over; it lasts for milliseconds.
          const bool is_foreign = is_mute && handshaking > 0;
          if (is_foreign) --handshaking;
          if (event->fault && (!is_foreign || event->fault != net::HandshakeFault::broken_off))
            break;
          if (known && !is_foreign) {
            ++peers.left;
            if (judges && left) left(event->peer, peers.joined - peers.left);
          }
          if (is_mute) note_mute(event->peer, is_foreign);
      }
      if (!judges) continue;
      if (bind) {
        security.see_at_listener(*event);
      } else {
        security.see_at_connector(*event, address, failures);
      }
    }
  }

  void note_mute(const std::string& peer, bool is_foreign) {
    // A peer of the wrong kind may be gone before its address is known.
    if ((peer == net::kGonePeer && !is_foreign) || gone_mute.size() == kMostMute) return;
    gone_mute.push_back({peer, is_foreign});
  }

  /// Closes all connections, and waits until libzmq has noticed, a second at most.
  void close_connections() {
    count_peers(false);
    for (const auto& [connection, taken] : connections) shutdown(connection, SHUT_RDWR);
    const auto deadline = std::chrono::steady_clock::now() + kHangUp;
    while (!connections.empty() && std::chrono::steady_clock::now() < deadline) {
      zmq::pollitem_t item{monitor.handle(), 0, ZMQ_POLLIN, 0};
      zmq_poll(&item, 1, 10);
      count_peers(false);
    }
  }

  EventFd stop;
  const std::shared_ptr<zmq::context_t> context;
  const ZmqSocketOptions::Role role;
  const bool bind;
  const std::int64_t send_buffer;
  const std::function<void(const std::string&, std::int64_t)> left;
  net::SocketSecurity security;
  zmq::socket_t socket;
  net::ZmqMonitor monitor;
  Peers peers;
  int failures = 0;                         // of handshakes, in a row
  std::map<int, std::int64_t> connections;  // and bytes received from each in messages
  std::set<int> mute;                       // of them, those without a message
  int handshaking = 0;                      // connections whose handshake is not over
  std::vector<MutePeer> gone_mute;          // peers that left without a message
  std::string address;
  std::optional<net::SocketFile> file;  // removed while we listen: the name is still ours
};

ZmqSocket::ZmqSocket(const net::Endpoint& endpoint, const ZmqSocketOptions& options,
                     net::PeerReports reports) {
  FileDescriptor turn;
  if (options.bind) turn = net::check_bindable(endpoint, options.insecure || options.curve);
  try {
    state_ = std::make_unique<State>(endpoint, options, std::move(reports));
  } catch (const zmq::error_t& error) {
    throw ConfigError(
        "cannot open a ZeroMQ socket for {}: {}; is the process out of file descriptors?",
        endpoint.text, error.what());
  }
}

ZmqSocket::~ZmqSocket() {
  // libzmq 4.3 aborts the process if it drops a half-written message of several frames on a
  // connection that ends at that moment.
  const bool drops = state_->socket.get(zmq::sockopt::linger) == 0;
  if (drops && state_->role != ZmqSocketOptions::Role::pull) state_->close_connections();
}

void* ZmqSocket::native() noexcept { return state_->socket.handle(); }
const std::string& ZmqSocket::address() const noexcept { return state_->address; }

ZmqSocket::Peers ZmqSocket::peers() const noexcept {
  Peers peers = state_->peers;
  peers.refused = state_->security.refused();
  return peers;
}

void ZmqSocket::look() { state_->count_peers(); }

bool ZmqSocket::cut_off(const net::MessageSender& sender) {
  state_->security.ban(sender.public_key);
  state_->count_peers();
  // The descriptor of an ended connection may have been reused.
  return state_->connections.contains(sender.connection) &&
         net::peer_of(sender.connection).starts_with(sender.address) &&
         shutdown(sender.connection, SHUT_RDWR) == 0;
}

void ZmqSocket::took(int connection, std::int64_t bytes) {
  const auto found = state_->connections.find(connection);
  if (found == state_->connections.end()) return;
  // Count libzmq's bytes around frames as taken, but never more than has arrived.
  found->second = std::min(found->second + bytes + kAroundMessage, arrived_over_tcp(connection));
}

std::vector<std::string> ZmqSocket::cut_off_floods(std::int64_t most) {
  std::vector<std::string> names;
  for (auto& [connection, taken] : state_->connections) {
    const std::int64_t waiting = arrived_over_tcp(connection) - taken;
    if (waiting <= most || waiting - most <= unread_over_tcp(connection)) continue;
    names.push_back(net::peer_of(connection));
    state_->mute.erase(connection);  // named once
    // Reset the connection: otherwise the peer would wait for buffer space that never comes.
    const struct linger reset { .l_onoff = 1, .l_linger = 0 };
    setsockopt(connection, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    shutdown(connection, SHUT_RDWR);
    taken += waiting;  // named once
  }
  return names;
}

void ZmqSocket::note_received(const ZmqMessage& message) {
  State& state = *state_;
  const int connection = message.connection();
  if (!state.connections.contains(connection)) state.count_peers();
  state.mute.erase(connection);
  if (state.gone_mute.empty()) return;
  // Its connection may have ended since.
  const std::string address = message.sender().address;
  std::erase_if(state.gone_mute, [&](const MutePeer& peer) {
    return peer.name == address || peer.name.starts_with(address + " ");
  });
}

std::vector<ZmqSocket::MutePeer> ZmqSocket::mute_peers() {
  return std::exchange(state_->gone_mute, {});
}

bool ZmqSocket::has_unread_bytes() {
  state_->count_peers();
  return std::any_of(state_->connections.begin(), state_->connections.end(), [](const auto& known) {
    int unread = 0;
    return ioctl(known.first, SIOCOUTQ, &unread) == 0 && unread > 0;
  });
}

void ZmqSocket::linger(std::chrono::milliseconds time) {
  state_->socket.set(zmq::sockopt::linger, static_cast<int>(time.count()));
}

ZmqSocket::Wake ZmqSocket::wait(Nanoseconds limit, const std::stop_token& stop, int other_fd,
                                int another_fd) {
  ZmqSocket* const self = this;
  return wait_for_any(std::span(&self, 1), limit, stop, other_fd, another_fd);
}

ZmqSocket::Wake ZmqSocket::wait_for_any(std::span<ZmqSocket* const> sockets, Nanoseconds limit,
                                        const std::stop_token& stop, int other_fd, int another_fd) {
  PENSTOCK_ASSERT(!sockets.empty() && sockets.size() <= kMostTogether);
  // Peers run in real time, so this wait does too, whatever clock the harness uses.
  const auto deadline = std::chrono::steady_clock::now() + std::min(limit, kLongest);
  const EventFd& stopping = sockets.front()->state_->stop;
  const std::stop_callback wake(stop, [&stopping] { stopping.signal(); });
  // First the sockets, then their monitors.
  std::array<zmq::pollitem_t, 2 * kMostTogether + 3> items;
  const std::size_t count = sockets.size(), stopped = 2 * count, others = stopped + 1;
  for (std::size_t i = 0; i < count; ++i) {
    State& state = *sockets[i]->state_;
    const bool pushes = state.role == ZmqSocketOptions::Role::push;
    items[i] = {state.socket.handle(), 0, static_cast<short>(pushes ? ZMQ_POLLOUT : ZMQ_POLLIN), 0};
    items[count + i] = {state.monitor.handle(), 0, ZMQ_POLLIN, 0};
  }
  items[stopped] = {nullptr, stopping.get(), ZMQ_POLLIN, 0};
  std::size_t polled = others;
  for (const int fd : {other_fd, another_fd}) {
    if (fd >= 0) items[polled++] = {nullptr, fd, ZMQ_POLLIN, 0};
  }
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const long timeout_ms = std::max<long>(left.count(), 0);
    if (zmq_poll(items.data(), static_cast<int>(polled), timeout_ms) < 0) {
      if (errno == EINTR) continue;
      throw zmq::error_t();
    }
    bool ready = false;
    for (std::size_t i = 0; i < count; ++i) {
      if (items[count + i].revents != 0) sockets[i]->state_->count_peers();
      ready = ready || items[i].revents != 0;
    }
    if (items[stopped].revents != 0) return Wake::stopped;
    if (ready) return Wake::ready;
    for (std::size_t i = others; i < polled; ++i) {
      if (items[i].revents != 0) return Wake::other;
    }
    if (left.count() <= 0) return Wake::late;
  }
}

std::int32_t checked_count(std::string_view name, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most) {
    throw ConfigError("{} is {}; expected 1 to {}", name, value, most);
  }
  return static_cast<std::int32_t>(value);
}

}  // namespace penstock::remote
