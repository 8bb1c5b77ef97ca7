// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/zmq_monitor.h"

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <utility>
#include <zmq.hpp>

#include "dataflow/assertion.h"

namespace penstock::net {
namespace {

constexpr int kHandshakeMilliseconds = 10'000;
/// Seconds before the first probe of a silent connection, seconds between probes, and their number.
constexpr int kIdleSeconds = 15, kProbeSeconds = 5, kProbes = 3;

constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_DISCONNECTED;

template <typename Value>
void set(void* socket, int option, Value value) {
  if (zmq_setsockopt(socket, option, &value, sizeof value) != 0) throw zmq::error_t();
}

HandshakeFault fault_of(std::uint16_t event, std::int32_t value) {
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return HandshakeFault::not_admitted;
  if (event != ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) return HandshakeFault::broken_off;
  switch (value) {
    case ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
      return HandshakeFault::mechanism;
    case ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
      return HandshakeFault::key;
    default:
      return HandshakeFault::broken_off;
  }
}

std::string text_property(zmq_msg_t* message, const char* name) {
  const char* const text = zmq_msg_gets(message, name);
  return text == nullptr ? "" : text;
}

}  // namespace

void bound_socket(void* socket, std::int64_t max_message) {
  set(socket, ZMQ_LINGER, 0);
  set(socket, ZMQ_MAXMSGSIZE, max_message);
  set(socket, ZMQ_HANDSHAKE_IVL, kHandshakeMilliseconds);
  set(socket, ZMQ_TCP_KEEPALIVE, 1);
  set(socket, ZMQ_TCP_KEEPALIVE_IDLE, kIdleSeconds);
  set(socket, ZMQ_TCP_KEEPALIVE_INTVL, kProbeSeconds);
  set(socket, ZMQ_TCP_KEEPALIVE_CNT, kProbes);
}

std::string peer_of(int connection) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);  // NOLINT
  if (getpeername(connection, generic, &length) != 0) return kGonePeer;
  if (address.ss_family == AF_UNIX) {
    ucred who{};
    socklen_t size = sizeof who;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return "a process";
    return "process " + std::to_string(who.pid) + " of user " + std::to_string(who.uid);
  }
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(generic, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "a peer without an address";
  }
  return text.data();
}

std::string readable_address(const std::string& address) {
  if (!address.starts_with("localhost:")) return address;
  return "process " + address.substr(address.rfind(':') + 1);  // the part after user and group
}

MessageSender sender_of(void* message) {
  auto* const handle = static_cast<zmq_msg_t*>(message);
  return {.connection = zmq_msg_get(handle, ZMQ_SRCFD),
          .address = readable_address(text_property(handle, "Peer-Address")),
          .public_key = text_property(handle, "User-Id")};
}

std::string describe(const MessageSender& sender) {
  std::string text = sender.address.empty() ? "a peer without an address" : sender.address;
  if (!sender.public_key.empty()) text += " with key " + sender.public_key;
  return text;
}

ZmqMonitor::ZmqMonitor(void* context, void* watched)
    : watched_(watched), socket_(zmq_socket(context, ZMQ_PAIR), zmq_close) {
  if (!socket_) throw zmq::error_t();
  const std::string address =
      "inproc://connections-" + std::to_string(reinterpret_cast<std::uintptr_t>(watched));
  if (zmq_socket_monitor(watched, address.c_str(), kEvents) != 0) throw zmq::error_t();
  set(socket_.get(), ZMQ_LINGER, 0);
  set(socket_.get(), ZMQ_RCVHWM, 0);  // otherwise a full pipe blocks libzmq's own thread
  if (zmq_connect(socket_.get(), address.c_str()) != 0) throw zmq::error_t();
}

ZmqMonitor::~ZmqMonitor() { zmq_socket_monitor(watched_, nullptr, 0); }

/// An event has a 16-bit number, a 32-bit value (for connections: their descriptor), and a frame
/// with the endpoint.
std::optional<ConnectionEvent> ZmqMonitor::next() {
  zmq::message_t frame;
  while (zmq_msg_recv(frame.handle(), socket_.get(), ZMQ_DONTWAIT) >= 0) {
    std::uint16_t event = 0;
    std::int32_t value = 0;
    PENSTOCK_ASSERT(frame.size() == sizeof event + sizeof value);
    std::memcpy(&event, frame.data(), sizeof event);
    std::memcpy(&value, frame.data<std::byte>() + sizeof event, sizeof value);
    if (frame.more()) zmq_msg_recv(frame.handle(), socket_.get(), ZMQ_DONTWAIT);
    switch (event) {
      case ZMQ_EVENT_ACCEPTED:
      case ZMQ_EVENT_CONNECTED:
        return ConnectionEvent{.kind = ConnectionEvent::Kind::opened,
                               .connection = value,
                               .peer = peers_[value] = peer_of(value),
                               .fault = {}};
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        return ConnectionEvent{.kind = ConnectionEvent::Kind::joined, .peer = {}, .fault = {}};
      case ZMQ_EVENT_DISCONNECTED: {
        ConnectionEvent ended{.kind = ConnectionEvent::Kind::ended,
                              .connection = value,
                              .peer = peers_[value],
                              .fault = std::exchange(fault_, std::nullopt)};
        peers_.erase(value);
        return ended;
      }
      default:
        fault_ = fault_of(event, value);
    }
  }
  return std::nullopt;
}

}  // namespace penstock::net
