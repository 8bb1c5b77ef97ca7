// SPDX-License-Identifier: Apache-2.0
// Answers a Prometheus server with a page of metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "dataflow/clock.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock {

/// Serves GET /metrics. It accepts at most twenty new clients per second.
/// Each client gets one second and a short request, so slow or idle clients delay neither each
/// other nor the measurement.
///
/// No library: Debian's prometheus-cpp would bring a web server with a thread pool into the
/// measured process, but only one page of text is needed.
class MetricsServer {
 public:
  /// Listens on an IPv4 address of this host; port 0: any free port. `page` builds the answer on
  /// the server's thread. Throws ConfigError if address and port are not available.
  MetricsServer(const std::string& address, std::uint16_t port, std::function<std::string()> page);
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
    std::string request{}, response{};  ///< `sent` bytes of the response are sent
    std::size_t sent = 0;
    bool done = false;
  };
  void advance(Client& client) const;
  std::string response_to(std::string_view request) const;

  const std::function<std::string()> page_;
  FileDescriptor socket_;
  EventFd wake_;
  std::uint16_t port_ = 0;
  std::jthread thread_;
};

}  // namespace penstock
