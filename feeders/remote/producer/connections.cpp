// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/producer/connections.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <zmq.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "feeders/remote/producer/failure.h"

namespace penstock::producer {
namespace {

constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_DISCONNECTED;

constexpr std::chrono::seconds kHangUp{1};

/// libzmq reports an event in two frames: a 16-bit number with a 32-bit value, and the endpoint.
struct Event {
  std::uint16_t number = 0;
  std::int32_t value = 0;
};

bool receive(void* socket, Event& event) {
  zmq_msg_t frame;
  zmq_msg_init(&frame);
  const bool received = zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) >= 0;
  if (received) {
    const auto* const bytes = static_cast<const char*>(zmq_msg_data(&frame));
    std::memcpy(&event.number, bytes, sizeof event.number);
    std::memcpy(&event.value, bytes + sizeof event.number, sizeof event.value);
    if (zmq_msg_more(&frame) != 0) zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT);
  }
  zmq_msg_close(&frame);
  return received;
}

/// 0: the descriptor is closed.
ino_t inode_of(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 ? about.st_ino : 0;
}

std::string reason(const Event& event) {
  if (event.number == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
    return "the consumer does not know public_key; add it to its curve_allow";
  }
  if (event.number == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) {
    if (event.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) {
      return "only one of the two sides has CURVE keys";
    }
    if (event.value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC) {
      return "server_key is not the consumer's public key";
    }
  }
  return "the consumer aborted the handshake; check that server_key is its public key";
}

}  // namespace

void Connections::Close::operator()(void* socket) const noexcept { zmq_close(socket); }

Connections::Connections(void* context, void* watched)
    : watched_(watched), socket_(zmq_socket(context, ZMQ_PAIR)) {
  const std::string address =
      "inproc://connections-" + std::to_string(reinterpret_cast<std::uintptr_t>(watched));
  constexpr int kNone = 0;  // no limit: a full pipe would block libzmq's thread
  if (!socket_ || zmq_socket_monitor(watched, address.c_str(), kEvents) != 0 ||
      zmq_setsockopt(socket_.get(), ZMQ_LINGER, &kNone, sizeof kNone) != 0 ||
      zmq_setsockopt(socket_.get(), ZMQ_RCVHWM, &kNone, sizeof kNone) != 0 ||
      zmq_connect(socket_.get(), address.c_str()) != 0) {
    throw Failure(PENSTOCK_PRODUCER_FAILED,
                  std::string("cannot watch a ZeroMQ socket: ") + zmq_strerror(zmq_errno()));
  }
}

Connections::~Connections() { zmq_socket_monitor(watched_, nullptr, 0); }

void Connections::look() {
  Event event;
  while (receive(socket_.get(), event)) {
    switch (event.number) {
      case ZMQ_EVENT_ACCEPTED:
      case ZMQ_EVENT_CONNECTED:
        open_[event.value] = inode_of(event.value);
        break;
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        ++joined_;
        break;
      case ZMQ_EVENT_DISCONNECTED:
        if (open_.erase(event.value) > 0 && !std::exchange(handshake_failed_, false)) ++left_;
        break;
      default:
        handshake_failed_ = true;
        ++refused_;
        why_ = reason(event);
    }
  }
}

void Connections::hang_up() noexcept {
  look();
  for (const auto& [connection, inode] : open_) {
    if (inode_of(connection) == inode) shutdown(connection, SHUT_RDWR);
  }
  const auto deadline = std::chrono::steady_clock::now() + kHangUp;
  while (!open_.empty() && std::chrono::steady_clock::now() < deadline) {
    zmq_pollitem_t item{socket_.get(), 0, ZMQ_POLLIN, 0};
    zmq_poll(&item, 1, 10);
    look();
  }
}

bool Connections::have_unread_bytes() const {
  return std::any_of(open_.begin(), open_.end(), [](const auto& connection) {
    int unread = 0;
    return ioctl(connection.first, SIOCOUTQ, &unread) == 0 && unread > 0;
  });
}

std::string Connections::describe() const {
  std::string text = joined_ == 0 ? " (no consumer ever connected"
                                  : " (" + std::to_string(joined_) + " consumers connected, " +
                                        std::to_string(left_) + " went away";
  if (refused_ > 0) text += "; " + std::to_string(refused_) + " handshakes failed: " + why_;
  return text + ")";
}

}  // namespace penstock::producer
