// SPDX-License-Identifier: Apache-2.0
#include "bench/metrics_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "bench/machine.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr Nanoseconds kClientTime = std::chrono::seconds(1);
constexpr Nanoseconds kBetweenClients = std::chrono::milliseconds(50);

Time now() { return std::chrono::steady_clock::now(); }

/// Blocks until `file` is ready for `events` (true), or `wake` is readable or `deadline` has
/// passed. A file of -1 is never ready.
bool wait_for(int file, short events, int wake, Time deadline) {
  while (true) {
    std::array<pollfd, 2> files{{{file, events, 0}, {wake, POLLIN, 0}}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now());
    const int limit = deadline == Time::max()
                          ? -1
                          : static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
    const int count = poll(files.data(), files.size(), limit);
    if (count < 0 && errno == EINTR) continue;
    return count > 0 && files[1].revents == 0 && files[0].revents != 0;
  }
}

std::string response(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, type, body.size(), body);
}

std::string refusal(std::string_view status) {
  return response(status, "text/plain; charset=utf-8", fmt::format("{}\n", status));
}

}  // namespace

MetricsServer::MetricsServer(std::uint16_t port, std::function<std::string()> page)
    : page_(std::move(page)),
      socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      wake_(eventfd(0, EFD_CLOEXEC)) {
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (socket_.number() < 0 || wake_.number() < 0 ||
      setsockopt(socket_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(socket_.number(), plain, size) != 0 || listen(socket_.number(), 8) != 0 ||
      getsockname(socket_.number(), plain, &size) != 0) {
    throw ConfigError(fmt::format(
        "cannot listen on 127.0.0.1:{} for --prometheus-port: {}; give another port, from 1024 to "
        "65535",
        port, std::strerror(errno)));
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

MetricsServer::~MetricsServer() {
  thread_.request_stop();
  eventfd_write(wake_.number(), 1);  // stays readable, so that every wait ends
  thread_.join();
}

void MetricsServer::serve(const std::stop_token& stop) {
  yield_to_other_threads();
  while (!stop.stop_requested()) {
    if (!wait_for(socket_.number(), POLLIN, wake_.number(), Time::max())) continue;
    const FileDescriptor client(
        accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const Time next = now() + kBetweenClients;
    if (client.number() >= 0) answer(client.number());
    wait_for(-1, 0, wake_.number(), next);
  }
}

/// Reads a request and writes the response, both within kClientTime.
void MetricsServer::answer(int client) {
  const Time deadline = now() + kClientTime;
  std::string request;
  std::array<char, kMaxRequest> buffer;
  while (request.find("\r\n\r\n") == std::string::npos && request.size() < kMaxRequest) {
    if (!wait_for(client, POLLIN, wake_.number(), deadline)) return;
    const ssize_t count = recv(client, buffer.data(), kMaxRequest - request.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (count > 0) request.append(buffer.data(), static_cast<std::size_t>(count));
  }
  const std::string text = response_to(request);
  for (std::string_view left = text; !left.empty();) {
    if (!wait_for(client, POLLOUT, wake_.number(), deadline)) return;
    const ssize_t count = send(client, left.data(), left.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return;
    if (count > 0) left.remove_prefix(static_cast<std::size_t>(count));
  }
  shutdown(client, SHUT_WR);
}

std::string MetricsServer::response_to(std::string_view request) const {
  if (request.find("\r\n\r\n") == std::string_view::npos) {
    return refusal("431 Request Header Fields Too Large");
  }
  const std::string_view line = request.substr(0, request.find("\r\n"));
  if (!line.ends_with(" HTTP/1.1") && !line.ends_with(" HTTP/1.0")) {
    return refusal("400 Bad Request");
  }
  if (!line.starts_with("GET ")) return refusal("405 Method Not Allowed");
  const std::string_view target = line.substr(4, line.size() - 4 - 9);
  if (target.substr(0, target.find('?')) != "/metrics") return refusal("404 Not Found");
  return response("200 OK", "text/plain; version=0.0.4; charset=utf-8", page_());
}

}  // namespace penstock
