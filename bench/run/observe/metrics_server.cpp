// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/metrics_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "bench/record/machine.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr Nanoseconds kClientTime = std::chrono::seconds(1);
constexpr Nanoseconds kBetweenClients = std::chrono::milliseconds(50);

Time now() { return std::chrono::steady_clock::now(); }

std::string response(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, type, body.size(), body);
}

std::string refusal(std::string_view status) {
  return response(status, "text/plain; charset=utf-8", fmt::format("{}\n", status));
}

}  // namespace

MetricsServer::MetricsServer(const std::string& host, std::uint16_t port,
                             std::function<std::string()> page)
    : page_(std::move(page)),
      socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw ConfigError(
        "--prometheus-address is '{}'; expected an IPv4 address of this host, or 0.0.0.0 for all",
        host);
  }
  socklen_t size = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (!socket_ || setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(socket_.get(), plain, size) != 0 || listen(socket_.get(), 8) != 0 ||
      getsockname(socket_.get(), plain, &size) != 0) {
    throw ConfigError(
        "cannot listen on {}:{} for --prometheus-port: {}; give another port, from 1024 to 65535, "
        "or --prometheus-address",
        host, port, std::strerror(errno));
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

MetricsServer::~MetricsServer() {
  thread_.request_stop();
  wake_.signal();  // stays readable, so that every wait ends
  thread_.join();
}

void MetricsServer::serve(const std::stop_token& stop) {
  yield_to_other_threads();
  std::deque<Client> clients;  // oldest first, so the first one reaches its deadline first
  Time next_accept{};
  std::vector<pollfd> files;
  while (!stop.stop_requested()) {
    const bool accepts = now() >= next_accept;
    files = {{wake_.get(), POLLIN, 0}, {accepts ? socket_.get() : -1, POLLIN, 0}};
    for (const Client& client : clients) {
      const short events = client.response.empty() ? POLLIN : POLLOUT;
      files.push_back({client.socket.get(), events, 0});
    }
    Time until = accepts ? Time::max() : next_accept;
    if (!clients.empty()) until = std::min(until, clients.front().deadline);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now());
    const int limit =
        until == Time::max() ? -1 : static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    if (poll(files.data(), files.size(), limit) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      if (files[i + 2].revents != 0) advance(clients[i]);
    }
    std::erase_if(clients,
                  [](const Client& client) { return client.done || now() >= client.deadline; });
    if ((files[1].revents & POLLIN) == 0) continue;
    FileDescriptor socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    next_accept = now() + kBetweenClients;
    if (!socket) continue;
    clients.push_back({.socket = std::move(socket), .deadline = now() + kClientTime});
  }
}

/// Reads or writes as much as possible without blocking.
void MetricsServer::advance(Client& client) const {
  if (client.response.empty()) {
    std::array<char, kMaxRequest> buffer;
    const ssize_t count =
        recv(client.socket.get(), buffer.data(), kMaxRequest - client.request.size(), 0);
    client.done = count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
    if (count <= 0) return;
    client.request.append(buffer.data(), static_cast<std::size_t>(count));
    const bool whole = client.request.find("\r\n\r\n") != std::string::npos;
    if (!whole && client.request.size() < kMaxRequest) return;
    client.response = response_to(client.request);
  }
  const ssize_t count = send(client.socket.get(), client.response.data() + client.sent,
                             client.response.size() - client.sent, MSG_NOSIGNAL);
  if (count > 0) client.sent += static_cast<std::size_t>(count);
  client.done =
      client.sent == client.response.size() || (count < 0 && errno != EAGAIN && errno != EINTR);
  if (client.done) shutdown(client.socket.get(), SHUT_WR);
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
