// SPDX-License-Identifier: Apache-2.0
// A PUSH socket of libzmq and nothing else, each with a context, and so threads, of its own.
//
// It has to live until the other side has read everything: over ipc, a consumer whose pipe is full
// when its peer closes drops what still lies in the kernel (libzmq 4.3.4 reads no more once it has
// seen EPOLLHUP), whatever the linger time.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <zmq.hpp>

#include "tests/transport/wire_writers.h"

namespace penstock::transport {

/// One thread. Every wait ends within 20 s, with a failure.
class RawProducer {
 public:
  enum class Side : std::uint8_t { binds, connects };

  RawProducer(const std::string& endpoint, Side side) {
    socket_.set(zmq::sockopt::linger, kLimitMs);
    socket_.set(zmq::sockopt::sndtimeo, kLimitMs);
    socket_.set(zmq::sockopt::sndhwm, 2);
    socket_.set(zmq::sockopt::immediate, 1);
    zmq_socket_monitor(socket_.handle(), "inproc://monitor", ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
    monitor_.set(zmq::sockopt::rcvtimeo, kLimitMs);
    monitor_.connect("inproc://monitor");
    side == Side::binds ? socket_.bind(endpoint) : socket_.connect(endpoint);
  }

  /// With the port that libzmq chose.
  std::string address() { return socket_.get(zmq::sockopt::last_endpoint); }

  /// Blocks until so many peers have come since the last call.
  void await_peers(int peers) {
    zmq::message_t frame;
    for (int frames = 0; frames < 2 * peers; ++frames) {
      ASSERT_TRUE(monitor_.recv(frame)) << "no peer came";
    }
  }

  void send(const Message& message) {
    for (std::size_t i = 0; i < message.size(); ++i) send(message[i], i + 1 < message.size());
  }
  void send(const Bytes& frame, bool more) {
    ASSERT_TRUE(
        socket_.send(zmq::buffer(frame), more ? zmq::send_flags::sndmore : zmq::send_flags::none))
        << "nobody took a message within " << kLimitMs << " ms";
  }
  /// What nobody took is dropped at the end.
  void abandon() { socket_.set(zmq::sockopt::linger, 0); }

 private:
  static constexpr int kLimitMs = 20000;
  zmq::context_t context_;
  zmq::socket_t monitor_{context_, ZMQ_PAIR};
  zmq::socket_t socket_{context_, ZMQ_PUSH};
};

/// Producer 0, which sends `batches` batches from its own thread.
class GoodStream {
 public:
  GoodStream(const std::string& to, std::int32_t batches, Format format = Format::pickle,
             const BatchSpec& spec = kLarge)
      : producer_(to, RawProducer::Side::connects), thread_([this, batches, format, spec] {
          for (std::int32_t batch = 0; batch < batches; ++batch) {
            producer_.send(message_of(format, spec, {0, batch}));
          }
        }) {}

 private:
  RawProducer producer_;
  std::jthread thread_;
};

}  // namespace penstock::transport
