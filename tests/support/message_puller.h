// SPDX-License-Identifier: Apache-2.0
// A bare PULL socket that receives framed messages for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <zmq.hpp>

#include "tests/support/framed_messages.h"

namespace penstock {

/// The frames of the next message. Empty if no message came in time.
inline FrameList received_frames(zmq::socket_t& socket) {
  FrameList frames;
  for (bool more = true; more;) {
    zmq::message_t frame;
    if (!socket.recv(frame)) return {};
    frames.emplace_back(frame.data<std::byte>(), frame.data<std::byte>() + frame.size());
    more = frame.more();
  }
  return frames;
}

class MessagePuller {
 public:
  explicit MessagePuller(const std::string& endpoint) {
    socket_.set(zmq::sockopt::rcvtimeo, 20000);
    socket_.bind(endpoint);
  }

  /// Fails if no message came in time.
  FrameList next() {
    FrameList frames = received_frames(socket_);
    EXPECT_FALSE(frames.empty()) << "no message came in time";
    return frames;
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, ZMQ_PULL};
};

}  // namespace penstock
