// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/message_sockets.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <zmq.hpp>

#include "dataflow/net/zmq_monitor.h"

namespace penstock::net {
namespace {

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

struct MessageSockets::State {
  State(const CurveSetup& curve, const PeerReports& reports, int io_threads)
      : context(io_threads), keys(context.handle(), curve, reports) {}

  struct Socket {
    Socket(State& state, zmq::socket_type type, std::string where, std::size_t key,
           const SocketLimits& the_limits)
        : endpoint(std::move(where)),
          listens(type == zmq::socket_type::router),
          limits(the_limits),
          socket(state.context, type) {
      if (limits.watched) monitor.emplace(state.context.handle(), socket.handle());
      bound_socket(socket.handle(), static_cast<std::int64_t>(limits.frame));
      socket.set(zmq::sockopt::sndhwm, limits.queued);
      socket.set(zmq::sockopt::rcvhwm, limits.queued);
      if (!endpoint.starts_with("tcp:")) return;  // no other machine can reach it
      if (endpoint.find('[') != std::string::npos) socket.set(zmq::sockopt::ipv6, 1);
      state.keys.set_up(socket.handle(), key);
    }

    const std::string endpoint;
    const bool listens;
    const SocketLimits limits;
    zmq::socket_t socket;
    std::optional<ZmqMonitor> monitor;
    int failures = 0;  // consecutive failed handshakes
  };
  std::size_t add(zmq::socket_type type, const std::string& endpoint, std::size_t key,
                  const SocketLimits& limits) {
    try {
      auto made = std::make_unique<Socket>(*this, type, endpoint, key, limits);
      made->listens ? made->socket.bind(endpoint) : made->socket.connect(endpoint);
      sockets.push_back(std::move(made));
    } catch (const zmq::error_t& error) {
      throw SocketError(error.what(), error.num() == EADDRINUSE);
    }
    return sockets.size() - 1;
  }

  zmq::context_t context;
  SocketSecurity keys;
  std::vector<std::unique_ptr<Socket>> sockets;
  std::size_t next = 0;   // the socket that is asked first
  zmq::message_t header;  // of the message received last
};

MessageSockets::MessageSockets(const CurveSetup& curve, const PeerReports& reports, int io_threads)
    : state_(std::make_unique<State>(curve, reports, io_threads)) {}

MessageSockets::~MessageSockets() {
  for (const auto& each : state_->sockets) {
    each->socket.set(zmq::sockopt::linger, static_cast<int>(each->limits.linger.count()));
  }
}

std::size_t MessageSockets::listen(const std::string& endpoint, const SocketLimits& limits) {
  return state_->add(zmq::socket_type::router, endpoint, 0, limits);
}

std::size_t MessageSockets::connect(const std::string& endpoint, std::size_t key,
                                    const SocketLimits& limits) {
  return state_->add(zmq::socket_type::dealer, endpoint, key, limits);
}

std::string MessageSockets::endpoint(std::size_t socket) const {
  return state_->sockets[socket]->socket.get(zmq::sockopt::last_endpoint);
}

void MessageSockets::wait(Nanoseconds limit, const EventFd& wake) {
  std::vector<zmq::pollitem_t> items = {{nullptr, wake.get(), ZMQ_POLLIN, 0}};
  for (const auto& each : state_->sockets) {
    items.push_back({each->socket.handle(), 0, ZMQ_POLLIN, 0});
    if (each->monitor) items.push_back({each->monitor->handle(), 0, ZMQ_POLLIN, 0});
  }
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  if (zmq_poll(items.data(), static_cast<int>(items.size()), std::max<long>(wait, 0)) < 0 &&
      errno != EINTR) {
    throw zmq::error_t();
  }
  wake.drain();
}

bool MessageSockets::receive(Received& message) {
  const std::size_t count = state_->sockets.size();
  for (std::size_t tried = 0; tried < count; ++tried) {
    message = {.socket = state_->next};
    state_->next = (state_->next + 1) % count;
    State::Socket& from = *state_->sockets[message.socket];
    zmq::message_t peer;
    if (from.listens && !receive_frame(from.socket, peer)) continue;
    state_->header.rebuild();
    message.frames =
        receive_body(from.socket, !from.listens || peer.more(), state_->header, message.data);
    message.header = view(state_->header);
    if (!from.listens && message.frames == 0) continue;
    message.peer = peer.to_string();
    if (from.listens && message.frames > 0) {
      MessageSender sender = sender_of(state_->header.handle());
      message.connection = sender.connection;
      message.address = std::move(sender.address);
    }
    return true;
  }
  return false;
}

std::vector<MessageSockets::Ended> MessageSockets::ended() {
  std::vector<Ended> ended;
  for (std::size_t i = 0; i < state_->sockets.size(); ++i) {
    State::Socket& each = *state_->sockets[i];
    while (const auto event = each.monitor ? each.monitor->next() : std::nullopt) {
      if (each.listens) {
        state_->keys.see_at_listener(*event);
      } else {
        state_->keys.see_at_connector(*event, each.endpoint, each.failures);
      }
      // A failed handshake was no connection yet: a connecting libzmq tries again.
      if (event->kind == ConnectionEvent::Kind::ended && (each.listens || !event->fault)) {
        ended.push_back({i, event->connection});
      }
    }
  }
  return ended;
}

std::int64_t MessageSockets::refused() const noexcept { return state_->keys.refused(); }

void MessageSockets::send(std::size_t socket, const std::string& peer,
                          std::span<const std::byte> header, std::span<const std::byte> data,
                          const Borrowed* borrowed) {
  const bool more = !data.empty(), gives_back = borrowed != nullptr && borrowed->sent != nullptr;
  if (gives_back && (!more || state_->sockets.empty())) borrowed->sent(nullptr, borrowed->hint);
  if (state_->sockets.empty()) return;
  zmq::socket_t& to = state_->sockets[socket]->socket;
  zmq::message_t frame = data_frame(data, borrowed);
  const auto last = peer.empty() ? zmq::send_flags::none : zmq::send_flags::dontwait;
  try {
    zmq::message_t name(peer);
    // A router silently drops messages for a peer that is gone.
    if (!peer.empty() && !to.send(name, last | zmq::send_flags::sndmore)) return;
    to.send(zmq::message_t(header.data(), header.size()),
            more ? last | zmq::send_flags::sndmore : last);
    if (more) to.send(frame, last);
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;
  }
}

void MessageSockets::drop() {
  state_->sockets.clear();
  state_->context.close();
}

}  // namespace penstock::net
