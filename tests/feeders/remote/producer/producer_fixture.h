// SPDX-License-Identifier: Apache-2.0
// A consumer that reads the framed format from its description (feeders/remote/framed_format.md),
// byte by byte and with no code of Penstock's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "feeders/remote/producer/penstock_producer.hpp"
#include "tests/support/temp_folder.h"

namespace penstock {

/// Each frame's bytes.
using Frames = std::vector<std::string>;

/// The unsigned number at a place of a header, lowest byte first.
inline std::uint64_t number_at(const std::string& header, std::size_t at, std::size_t bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes; i > 0; --i) {
    number = number << 8 | static_cast<std::uint8_t>(header.at(at + i - 1));
  }
  return number;
}
inline std::uint64_t u16(const std::string& header, std::size_t at) {
  return number_at(header, at, 2);
}
inline std::uint64_t u32(const std::string& header, std::size_t at) {
  return number_at(header, at, 4);
}
inline std::uint64_t u64(const std::string& header, std::size_t at) {
  return number_at(header, at, 8);
}

inline constexpr std::uint64_t kBatch = 1, kHello = 2, kEnd = 3;
inline std::uint64_t kind_of(const Frames& message) { return u16(message.at(0), 10); }
inline std::uint64_t sequence_of(const Frames& message) { return u64(message.at(0), 24); }

/// A bare PULL socket.
class Puller {
 public:
  /// `rcvhwm`: messages that it takes in before they are asked for.
  explicit Puller(const std::string& endpoint, bool bind = true, int rcvhwm = 1000) {
    socket_.set(zmq::sockopt::rcvtimeo, 20'000);
    socket_.set(zmq::sockopt::rcvhwm, rcvhwm);
    socket_.set(zmq::sockopt::linger, 0);
    if (!endpoint.empty()) bind ? socket_.bind(endpoint) : socket_.connect(endpoint);
  }

  zmq::socket_t& socket() { return socket_; }

  Frames next() {
    Frames frames;
    while (true) {
      zmq::message_t frame;
      if (!socket_.recv(frame)) {
        ADD_FAILURE() << "no message came";
        return {std::string(96, '\0')};
      }
      frames.push_back(frame.to_string());
      if (!frame.more()) return frames;
    }
  }
  Frames next_batch() {
    Frames message = next();
    while (kind_of(message) == kHello) message = next();
    EXPECT_EQ(kind_of(message), kBatch);
    return message;
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, ZMQ_PULL};
};

/// Sends batches of 2 images of 3 x 4, or of other sizes.
class ProducerTest : public ::testing::Test {
 protected:
  static constexpr BatchShape kShape{.images = 2, .height = 3, .width = 4, .channels = 3};
  static constexpr std::size_t kBytes = 2 * 3 * 4 * 3;

  static std::vector<std::uint8_t> pixels_of(std::size_t batch, std::size_t bytes = kBytes) {
    std::vector<std::uint8_t> pixels(bytes);
    for (std::size_t i = 0; i < bytes; ++i) pixels[i] = static_cast<std::uint8_t>(31 * batch + i);
    return pixels;
  }
  static std::string text_of(const std::vector<std::uint8_t>& bytes) {
    return {bytes.begin(), bytes.end()};
  }

  TempFolder folder_;
  const std::string endpoint_ = "ipc://" + (folder_ / "feed").string();
  const std::vector<std::int32_t> labels_{7, -1};
};

}  // namespace penstock
