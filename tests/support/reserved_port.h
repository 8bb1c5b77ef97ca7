// SPDX-License-Identifier: Apache-2.0
// Ports of this machine. A test reserves one: a process that asks for any port, or connects from
// any port, gets another one.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace penstock {

/// The address of a port of this machine; port 0: any port.
inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// A TCP port on 127.0.0.1. The port is bound and does not listen: servers that set SO_REUSEADDR,
/// such as libzmq and sshd, may bind it. Until one does, connections are refused.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int one = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, any, size), 0);
    EXPECT_EQ(getsockname(socket_, any, &size), 0);
    number_ = ntohs(address.sin_port);
  }
  ReservedPort(ReservedPort&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), number_(other.number_) {}
  ReservedPort& operator=(ReservedPort&&) = delete;
  ~ReservedPort() {
    if (socket_ >= 0) close(socket_);
  }

  std::uint16_t number() const noexcept { return number_; }
  std::string text() const { return std::to_string(number_); }
  /// Listens on the port: no other process can bind it any more.
  void listen() { EXPECT_EQ(::listen(socket_, 1), 0); }

 private:
  int socket_;
  std::uint16_t number_ = 0;
};

}  // namespace penstock
