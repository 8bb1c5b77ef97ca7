// SPDX-License-Identifier: Apache-2.0
// Plain TCP on this machine, for peers that speak ZMTP by hand, wrongly, or not at all, and a proxy
// that cuts a connection after so many bytes. Every wait ends within 20 s.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/reserved_port.h"
#include "tests/transport/wire_writers.h"

namespace penstock::transport {

/// Of "tcp://127.0.0.1:4711".
inline int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

class TcpSocket {
 public:
  explicit TcpSocket(int descriptor) : descriptor_(descriptor) {
    const timeval limit{20, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  TcpSocket(TcpSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  TcpSocket& operator=(TcpSocket&&) = delete;
  ~TcpSocket() { close(); }

  static TcpSocket connected_to(int port) {
    TcpSocket made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port);
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(connect(made.descriptor_, generic, sizeof address), 0) << std::strerror(errno);
    return made;
  }
  int descriptor() const { return descriptor_; }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

  /// False: the other side has ended the connection.
  bool send(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// What came, at most `most` bytes; empty: the end.
  Bytes receive(std::size_t most) const {
    Bytes bytes(most);
    const ssize_t count = recv(descriptor_, bytes.data(), most, 0);
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return bytes;
  }
  /// Whether the other side ends it.
  bool await_end() const {
    std::array<char, 512> rest{};
    ssize_t count = 1;
    while (count > 0) count = recv(descriptor_, rest.data(), rest.size(), 0);
    return count == 0 || errno == ECONNRESET;
  }

 private:
  int descriptor_;
};

/// A PUSH socket in ZMTP 3.0 (rfc.zeromq.org/spec/23), byte by byte.
class ZmtpClient {
 public:
  explicit ZmtpClient(int port) : socket_(TcpSocket::connected_to(port)) {}

  static Bytes greeting() {
    Bytes bytes;
    Writer(bytes).big(0xff, 1).big(1, 8).big(0x7f, 1).big(3, 1).big(0, 1).text("NULL");
    bytes.resize(64);
    return bytes;
  }
  static Bytes ready() {
    Bytes body;
    Writer(body).big(5, 1).text("READY").big(11, 1).text("Socket-Type").big(4, 4).text("PUSH");
    Bytes bytes;
    Writer(bytes).big(4, 1).big(body.size(), 1).bytes(body);
    return bytes;
  }
  /// Returns once the other side has taken it for a peer.
  void shake_hands() {
    send(greeting());
    send(ready());
    std::size_t expected = 64 + 2;
    Bytes answer;
    while (answer.size() < expected) {
      const Bytes more = socket_.receive(expected - answer.size());
      ASSERT_FALSE(more.empty()) << "no answer to the greeting";
      answer.insert(answer.end(), more.begin(), more.end());
      if (answer.size() >= 66) expected = 66 + std::to_integer<std::size_t>(answer[65]);
    }
  }
  static Bytes frame_header(std::uint64_t bytes, bool more) {
    Bytes header;
    Writer(header).big(more ? 3 : 2, 1).big(bytes, 8);  // a long frame
    return header;
  }
  void send(std::span<const std::byte> bytes) const { EXPECT_TRUE(socket_.send(bytes)); }
  void send_frame(const Bytes& frame, bool more) const {
    send(frame_header(frame.size(), more));
    send(frame);
  }
  const TcpSocket& socket() const { return socket_; }
  bool await_end() const { return socket_.await_end(); }
  void close() { socket_.close(); }

 private:
  TcpSocket socket_;
};

/// Between one producer and a consumer: passes so many bytes of the producer on, and then none.
class CuttingProxy {
 public:
  CuttingProxy(int consumer_port, std::size_t pass)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.descriptor(), generic, size), 0);
    EXPECT_EQ(listen(listener_.descriptor(), 1), 0);
    EXPECT_EQ(getsockname(listener_.descriptor(), generic, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this, consumer_port, pass](const std::stop_token& stop) {
      run(consumer_port, pass, stop);
    });
  }
  int port() const { return port_; }
  bool has_cut() const { return cut_; }
  /// Ends both connections.
  void end() {
    thread_.request_stop();
    thread_.join();
  }

 private:
  void run(int consumer_port, std::size_t left, const std::stop_token& stop) {
    if (!await_bytes(listener_.descriptor(), stop)) return;
    const TcpSocket producer(accept(listener_.descriptor(), nullptr, nullptr));
    const TcpSocket consumer = TcpSocket::connected_to(consumer_port);
    const std::jthread back([&](const std::stop_token& ended) {
      while (await_bytes(consumer.descriptor(), ended)) {
        const Bytes bytes = consumer.receive(4096);
        if (bytes.empty() || !producer.send(bytes)) return;
      }
    });
    while (left > 0 && await_bytes(producer.descriptor(), stop)) {
      const Bytes bytes = producer.receive(std::min<std::size_t>(left, 65536));
      if (bytes.empty() || !consumer.send(bytes)) return;
      left -= bytes.size();
    }
    cut_ = left == 0;
    while (!stop.stop_requested()) poll(nullptr, 0, 5);
  }
  static bool await_bytes(int descriptor, const std::stop_token& stop) {
    pollfd item{descriptor, POLLIN, 0};
    while (!stop.stop_requested()) {
      if (poll(&item, 1, 20) > 0) return true;
    }
    return false;
  }

  TcpSocket listener_;
  int port_ = 0;
  std::atomic<bool> cut_ = false;
  std::jthread thread_;
};

}  // namespace penstock::transport
