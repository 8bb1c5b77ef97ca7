// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/sockets.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/net/zmq_endpoint.h"
#include "trainer/cluster/servers/cluster.h"

namespace penstock::cluster {
namespace {

/// Sets all options of a socket before it binds or connects, except its keys.
void set_up(zmq::socket_t& socket, const std::string& endpoint) {
  net::bound_socket(socket.handle(), static_cast<std::int64_t>(kMaxFrame));
  // No limit on the number of messages: the parts of the weights bound it, and the data stay in
  // their owner's memory.
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  if (endpoint.find('[') != std::string::npos) socket.set(zmq::sockopt::ipv6, 1);
}

void check_server_keys(const net::CurveSetup& curve) {
  if (curve.role != net::CurveSetup::Role::client) return;
  throw ConfigError(
      "a parameter server has --curve-server-key, which is for workers; give it --curve-allow");
}

void check_worker_keys(const net::CurveSetup& curve, std::size_t servers) {
  if (curve.role == net::CurveSetup::Role::server) {
    throw ConfigError(
        "a worker has --curve-allow, which is for parameter servers; give it --curve-server-key");
  }
  const std::size_t keys = curve.server_keys.size();
  if (keys <= 1 || keys == servers) return;
  throw ConfigError("--curve-server-key has " + std::to_string(keys) + " files, and --ps-hosts " +
                    std::to_string(servers) +
                    " servers; give one file for all of them, or one for each");
}

void poll(std::vector<zmq::pollitem_t>& items, Nanoseconds limit) {
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  if (zmq_poll(items.data(), static_cast<int>(items.size()), std::max<long>(wait, 0)) < 0 &&
      errno != EINTR) {
    throw zmq::error_t();
  }
}

zmq::message_t header_frame(const ServerHeader& header) {
  zmq::message_t frame(kHeaderBytes);
  write_header(header, std::span<std::byte, kHeaderBytes>(frame.data<std::byte>(), kHeaderBytes));
  return frame;
}

void keep(void*, void*) {}

zmq::message_t data_frame(std::span<const std::byte> data, const Borrowed* borrowed) {
  if (borrowed == nullptr || data.empty()) return {data.data(), data.size()};
  // libzmq only reads.
  void* const bytes = const_cast<std::byte*>(data.data());  // NOLINT
  return {bytes, data.size(), borrowed->sent != nullptr ? borrowed->sent : keep, borrowed->hint};
}

/// Takes over the frame without a copy.
Frame as_frame(zmq::message_t&& message) {
  if (message.size() == 0) return {};
  auto* const owned = new zmq::message_t(std::move(message));
  return {{owned->data<std::byte>(), owned->size()},
          Frame::Owner(owned, [](void* object) { delete static_cast<zmq::message_t*>(object); })};
}

/// Receives a frame without blocking. False: there is none.
bool receive_frame(zmq::socket_t& socket, zmq::message_t& frame) {
  return socket.recv(frame, zmq::recv_flags::dontwait).has_value();
}

/// Receives a header and one frame of data, and drops further frames. Returns the number of frames.
std::size_t receive_body(zmq::socket_t& socket, bool more, zmq::message_t& header, Frame& data) {
  std::size_t frames = 0;
  zmq::message_t frame;
  while (more && receive_frame(socket, frame)) {
    more = frame.more();
    ++frames;
    if (frames == 1) header = std::move(frame);
    if (frames == 2) data = as_frame(std::move(frame));
    frame.rebuild();
  }
  return frames;
}

std::span<const std::byte> view(const zmq::message_t& frame) {
  return {frame.data<std::byte>(), frame.size()};
}

}  // namespace

// ---- server sockets ---------------------------------------------------------

struct RouterSocket::State {
  State(const std::string& address, const Security& security, int io_threads)
      : context(io_threads),
        keys(context.handle(), security.curve, security.reports),
        socket(context, ZMQ_ROUTER),
        monitor(context.handle(), socket.handle()) {
    check_server_keys(security.curve);
    const std::string endpoint = numeric_endpoint(address);
    net::check_bindable(net::parse_endpoint(endpoint), security.insecure || security.curve);
    set_up(socket, endpoint);
    keys.set_up(socket.handle());
    try {
      socket.bind(endpoint);
    } catch (const zmq::error_t& error) {
      const bool taken = error.num() == EADDRINUSE;
      throw ConfigError("cannot listen at " + address + ": " +
                        (taken ? "the port is taken by another process; stop that one, or give "
                                 "another --ps-hosts"
                               : std::string(error.what()) + "; give an address of this machine"));
    }
  }

  zmq::context_t context;
  net::SocketSecurity keys;
  zmq::socket_t socket;
  net::ZmqMonitor monitor;
  zmq::message_t header;  // of the message received last
};

RouterSocket::RouterSocket(const std::string& address, const Security& security, int io_threads)
    : state_(std::make_unique<State>(address, security, io_threads)) {}

/// Gives the last messages a moment to leave.
RouterSocket::~RouterSocket() {
  state_->socket.set(zmq::sockopt::linger, static_cast<int>(DealerSockets::kLinger.count()));
}

void RouterSocket::wait(Nanoseconds limit, const EventFd& wake) {
  std::vector<zmq::pollitem_t> items = {{state_->socket.handle(), 0, ZMQ_POLLIN, 0},
                                        {state_->monitor.handle(), 0, ZMQ_POLLIN, 0},
                                        {nullptr, wake.get(), ZMQ_POLLIN, 0}};
  poll(items, limit);
}

bool RouterSocket::receive(Server::Received& message) {
  zmq::message_t peer;
  if (!receive_frame(state_->socket, peer)) return false;
  message = {};
  message.peer = peer.to_string();
  state_->header.rebuild();
  message.frames = receive_body(state_->socket, peer.more(), state_->header, message.data);
  message.header = view(state_->header);
  if (message.frames > 0) {
    message.connection = zmq_msg_get(state_->header.handle(), ZMQ_SRCFD);
    if (const char* const from = zmq_msg_gets(state_->header.handle(), "Peer-Address")) {
      message.address = from;
    }
  }
  return true;
}

std::vector<int> RouterSocket::ended_connections() {
  std::vector<int> connections;
  while (const std::optional<net::ConnectionEvent> event = state_->monitor.next()) {
    state_->keys.see_at_listener(*event);
    if (event->kind == net::ConnectionEvent::Kind::ended) connections.push_back(event->connection);
  }
  return connections;
}

std::int64_t RouterSocket::refused() const noexcept { return state_->keys.refused(); }

void RouterSocket::send(const std::string& peer, const ServerHeader& header,
                        std::span<const std::byte> data, bool stays) {
  constexpr Borrowed kStays{};
  try {
    zmq::message_t name(peer);
    // A router silently drops messages for a peer that is gone.
    if (!state_->socket.send(name, zmq::send_flags::sndmore | zmq::send_flags::dontwait)) return;
    const bool more = !data.empty();
    state_->socket.send(
        header_frame(header),
        more ? zmq::send_flags::sndmore | zmq::send_flags::dontwait : zmq::send_flags::dontwait);
    if (more) {
      state_->socket.send(data_frame(data, stays ? &kStays : nullptr), zmq::send_flags::dontwait);
    }
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;
  }
}

// ---- worker sockets ---------------------------------------------------------

struct DealerSockets::State {
  State(const Security& security, int io_threads)
      : context(io_threads), keys(context.handle(), security.curve, security.reports) {}

  struct Connection {
    Connection(zmq::context_t& context, std::string where)
        : endpoint(std::move(where)),
          socket(context, ZMQ_DEALER),
          monitor(context.handle(), socket.handle()) {}
    const std::string endpoint;
    zmq::socket_t socket;
    net::ZmqMonitor monitor;
    int failures = 0;  // consecutive failed handshakes
  };
  zmq::context_t context;
  net::SocketSecurity keys;
  std::vector<std::unique_ptr<Connection>> servers;
};

DealerSockets::DealerSockets(std::span<const std::string> addresses, const Security& security,
                             int io_threads)
    : state_(std::make_unique<State>(security, io_threads)) {
  check_worker_keys(security.curve, addresses.size());
  for (const std::string& address : addresses) {
    const std::string endpoint = numeric_endpoint(address);
    const std::size_t server = state_->servers.size();
    zmq::socket_t& socket =
        state_->servers
            .emplace_back(std::make_unique<State::Connection>(state_->context, endpoint))
            ->socket;
    set_up(socket, endpoint);
    state_->keys.set_up(socket.handle(), server);
    socket.connect(endpoint);
  }
}

DealerSockets::~DealerSockets() {
  for (const auto& server : state_->servers) {
    server->socket.set(zmq::sockopt::linger, static_cast<int>(kLinger.count()));
  }
}

void DealerSockets::wait(Nanoseconds limit, const EventFd& wake) {
  std::vector<zmq::pollitem_t> items = {{nullptr, wake.get(), ZMQ_POLLIN, 0}};
  for (const auto& server : state_->servers) {
    items.push_back({server->socket.handle(), 0, ZMQ_POLLIN, 0});
    items.push_back({server->monitor.handle(), 0, ZMQ_POLLIN, 0});
  }
  poll(items, limit);
  wake.drain();
}

bool DealerSockets::receive(const Take& take) {
  bool any = false;
  for (std::size_t server = 0; server < state_->servers.size(); ++server) {
    zmq::socket_t& socket = state_->servers[server]->socket;
    zmq::message_t header;
    if (!receive_frame(socket, header)) continue;
    any = true;
    Frame data;
    zmq::message_t frame;
    bool more = header.more();
    std::size_t frames = 1;
    while (more && receive_frame(socket, frame)) {
      more = frame.more();
      if (++frames == 2) data = as_frame(std::move(frame));
      frame.rebuild();
    }
    take(server, view(header), std::move(data));
  }
  return any;
}

int DealerSockets::ended_server() {
  int ended = -1;
  for (std::size_t i = 0; i < state_->servers.size(); ++i) {
    State::Connection& server = *state_->servers[i];
    while (const std::optional<net::ConnectionEvent> event = server.monitor.next()) {
      state_->keys.see_at_connector(*event, server.endpoint, server.failures);
      // A failed handshake was no connection yet: libzmq tries again.
      const bool lost = event->kind == net::ConnectionEvent::Kind::ended && !event->fault;
      if (lost && ended < 0) ended = static_cast<int>(i);
    }
  }
  return ended;
}

void DealerSockets::send(std::size_t server, const ServerHeader& header,
                         std::span<const std::byte> data, const Borrowed* borrowed) {
  if (state_->servers.empty()) {
    if (borrowed != nullptr && borrowed->sent != nullptr) borrowed->sent(nullptr, borrowed->hint);
    return;
  }
  zmq::socket_t& socket = state_->servers[server]->socket;
  const bool more = !data.empty();
  socket.send(header_frame(header), more ? zmq::send_flags::sndmore : zmq::send_flags::none);
  if (more) {
    socket.send(data_frame(data, borrowed), zmq::send_flags::none);
  } else if (borrowed != nullptr && borrowed->sent != nullptr) {
    borrowed->sent(nullptr, borrowed->hint);
  }
}

void DealerSockets::drop() {
  state_->servers.clear();
  state_->context.close();
}

}  // namespace penstock::cluster
