// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/zmq_message.h"

#include <algorithm>
#include <string>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"

namespace penstock::remote {

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
  throw DataError("a message of " + std::to_string(count_) +
                  " frames; expected one, or a header and at most three");
}

MessageFrames ZmqMessage::kept_frames() const noexcept {
  return std::span(views_).first(std::min(count_, kMaxMessageFrames));
}

net::MessageSender ZmqMessage::sender() const { return net::sender_of(frames_->kept[0].handle()); }

int ZmqMessage::connection() const { return zmq_msg_get(frames_->kept[0].handle(), ZMQ_SRCFD); }

void ZmqMessage::swap(ZmqMessage& other) noexcept {
  std::swap(number, other.number);
  std::swap(endpoint, other.endpoint);
  std::swap(frames_, other.frames_);
  std::swap(views_, other.views_);
  std::swap(count_, other.count_);
  std::swap(bytes_, other.bytes_);
}

void ZmqMessage::clear() {
  count_ = 0;
  bytes_ = 0;
  for (zmq::message_t& frame : frames_->kept) frame.rebuild();
  frames_->surplus.rebuild();
}

}  // namespace penstock::remote
