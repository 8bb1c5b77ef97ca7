// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/zmq_message.h"

#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>
#include <zmq.hpp>

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

#ifdef __GLIBC__
/// Largest M_MMAP_THRESHOLD that glibc accepts on 64-bit machines.
constexpr std::size_t kMostThreshold = std::size_t{32} << 20;

/// Size of a thread's heap. glibc keeps a heap if the one before it has less room than M_TOP_PAD.
constexpr int kHeap = 64 << 20;
#endif

}  // namespace

struct ZmqMessage::Frames {
  std::array<zmq::message_t, kMaxMessageFrames> kept;
  zmq::message_t surplus;
};

ZmqMessage::ZmqMessage() : frames_(std::make_unique<Frames>()) {}
ZmqMessage::~ZmqMessage() = default;

bool ZmqMessage::receive(void* native) {
  zmq::socket_ref socket(zmq::from_handle, native);
  count_ = 0;
  bytes_ = 0;
  for (bool more = true; more; ++count_) {
    const bool kept = count_ < kMaxMessageFrames;
    zmq::message_t& frame = kept ? frames_->kept[count_] : frames_->surplus;
    // The frames of a message arrive together, so this never waits for one.
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) return false;
    if (kept) views_[count_] = {frame.data<std::byte>(), frame.size()};
    bytes_ += static_cast<std::int64_t>(frame.size());
    more = frame.more();
  }
  return true;
}

MessageFrames ZmqMessage::frames() const {
  if (count_ <= kMaxMessageFrames) return kept_frames();
  throw DataError("a message of {} frames; expected one, or a header and at most three", count_);
}

MessageFrames ZmqMessage::kept_frames() const noexcept {
  return std::span(views_).first(std::min(count_, kMaxMessageFrames));
}

net::MessageSender ZmqMessage::sender() const { return net::sender_of(frames_->kept[0].handle()); }

int ZmqMessage::connection() const { return zmq_msg_get(frames_->kept[0].handle(), ZMQ_SRCFD); }

void ZmqMessage::clear() {
  count_ = 0;
  bytes_ = 0;
  for (zmq::message_t& frame : frames_->kept) frame.rebuild();
  frames_->surplus.rebuild();
}

void enlarge_send_buffer(int connection, std::int64_t bytes) noexcept {
  int domain = 0, found = 0;
  socklen_t size = sizeof domain;
  if (getsockopt(connection, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX)
    return;
  size = sizeof found;
  if (getsockopt(connection, SOL_SOCKET, SO_SNDBUF, &found, &size) != 0) return;
  // The kernel doubles the requested size, and reports the doubled one.
  const int requested = static_cast<int>(std::min<std::int64_t>(bytes, INT_MAX / 2));
  if (found / 2 >= requested) return;
  static_cast<void>(setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &requested, sizeof requested));
}

void keep_message_memory(std::size_t bytes) noexcept {
#ifdef __GLIBC__
  // 4096: room for libzmq's own part of the message.
  if (bytes + 4096 < kMostThreshold) {
    mallopt(M_MMAP_THRESHOLD, kMostThreshold);
  } else {
    mallopt(M_MMAP_MAX, 0);
  }
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, kHeap);
#else
  static_cast<void>(bytes);
#endif
}

}  // namespace penstock::remote
