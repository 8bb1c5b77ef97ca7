// SPDX-License-Identifier: Apache-2.0
// Answers a Prometheus server on the loopback address: GET /metrics, at most twenty new clients a
// second, each of which has a second and a short request. So slow or idle clients delay neither
// each other nor what is measured.
//
// Not a library: Debian's prometheus-cpp brings a web server with a pool of threads into the
// process that is to be measured; what is needed of it is one page of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "bench/child_process.h"

namespace penstock {

class MetricsServer {
 public:
  /// Listens on 127.0.0.1; port 0: any that is free. `page` makes the answer, on the server's
  /// thread. Throws ConfigError where the port cannot be had.
  MetricsServer(std::uint16_t port, std::function<std::string()> page);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  std::uint16_t port() const noexcept { return port_; }

  static constexpr std::size_t kMaxRequest = 4096;

 private:
  void serve(const std::stop_token& stop);
  struct Client {
    FileDescriptor socket;
    Time deadline{};
    std::string request{}, response{};  ///< of which `sent` bytes have gone
    std::size_t sent = 0;
    bool done = false;
  };
  void advance(Client& client) const;
  std::string response_to(std::string_view request) const;

  const std::function<std::string()> page_;
  FileDescriptor socket_, wake_;
  std::uint16_t port_ = 0;
  std::jthread thread_;
};

}  // namespace penstock
