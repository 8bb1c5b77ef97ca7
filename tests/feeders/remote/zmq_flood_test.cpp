// SPDX-License-Identifier: Apache-2.0
// A peer that speaks ZeroMQ's protocol directly and fills the consumer's memory: frames of an
// endless message, which libzmq neither counts nor delivers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/feeders/remote/zmq_consume_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// A PUSH socket of ZMTP 3.0 (RFC 23) without a mechanism.
class BarePeer {
 public:
  explicit BarePeer(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{10, 0};
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    std::string greeting(64, '\0');
    greeting[0] = '\xff';
    greeting[9] = '\x7f';
    greeting[10] = 3;
    greeting.replace(12, 4, "NULL");
    const std::string ready("\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PUSH", 28);
    EXPECT_TRUE(send(greeting) && send(ready));
    std::string answer(greeting.size() + ready.size(), '\0');  // libzmq requires waiting for it
    EXPECT_EQ(recv(socket_, answer.data(), answer.size(), MSG_WAITALL),
              static_cast<ssize_t>(answer.size()));
  }
  BarePeer(const BarePeer&) = delete;
  BarePeer& operator=(const BarePeer&) = delete;
  ~BarePeer() { close(socket_); }

  /// Returns false if the connection has ended.
  bool send(const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<std::size_t>(count);
    }
    return true;
  }
  /// A frame of less than 64 KiB, with more frames of the message to follow.
  static std::string frame(std::size_t size) {
    std::string bytes("\x03\0\0\0\0\0\0", 7);
    bytes += static_cast<char>(size >> 8);
    bytes += static_cast<char>(size & 0xff);
    return bytes + std::string(size, 'x');
  }

 private:
  const int socket_;
};

/// The port of a consumer that chose it.
int port_of(const Consumer& consumer) {
  const std::string note = consumer.notes().at(0);
  return std::stoi(note.substr(note.rfind(':') + 1));
}

TEST(ZmqFlood, FramesOfAMessageThatNeverEndsEndTheirConnection) {
  Consumer consumer("endpoint=tcp://127.0.0.1:*,hwm=2");
  consumer.start();
  const int port = port_of(consumer);
  BarePeer hostile(port);
  const std::string frame = BarePeer::frame(60'000);
  constexpr int kMost = 20'000;  // 1.2 GB
  int sent = 0;
  while (sent < kMost && hostile.send(frame)) ++sent;
  EXPECT_LT(sent, kMost) << "it may send as much as it likes";
  Producer honest("tcp://127.0.0.1:" + std::to_string(port), false);
  honest.send(message_of(kSmall, 3));
  EXPECT_EQ(consumer.next(), 3U);
  EXPECT_EQ(consumer.counter("producers_cut_off"), 1);
  ASSERT_EQ(consumer.notes().size(), 2U);
  EXPECT_TRUE(contains(consumer.notes()[1], "cut off 127.0.0.1 at tcp://127.0.0.1:*"))
      << consumer.notes()[1];
}

TEST(ZmqFlood, BatchesThatWaitEndNoConnection) {
  Consumer consumer("endpoint=tcp://127.0.0.1:*,hwm=2");
  consumer.start();
  Producer producer("tcp://127.0.0.1:" + std::to_string(port_of(consumer)), false);
  const std::jthread sending([&] {  // more than a message may hold
    for (std::uint64_t i = 0; i < 10'000; ++i) producer.send(message_of(kSmall, i % 25));
  });
  for (std::uint64_t i = 0; i < 10'000; ++i) ASSERT_EQ(consumer.next(), i % 25);
  EXPECT_EQ(consumer.counter("producers_cut_off"), 0);
}

}  // namespace
}  // namespace penstock
