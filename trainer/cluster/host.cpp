// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/host.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock::cluster {
namespace {

/// A TCP connection in progress.
class Attempt {
 public:
  Attempt(std::string address, std::uint16_t port) : address_(std::move(address)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    if (inet_pton(AF_INET, address_.c_str(), &to.sin_addr) != 1) return;
    fd_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd_) return;
    const auto* const generic = reinterpret_cast<const sockaddr*>(&to);  // NOLINT
    if (connect(fd_.get(), generic, sizeof to) != 0 && errno != EINPROGRESS) end();
  }

  bool is_open() const noexcept { return static_cast<bool>(fd_); }
  int fd() const noexcept { return fd_.get(); }
  const std::string& address() const noexcept { return address_; }
  /// Called when the socket is writable. False: the connection was refused.
  bool succeeded() const {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }
  void end() noexcept { fd_.reset(); }

 private:
  std::string address_;
  FileDescriptor fd_;
};

/// The first attempt that succeeds.
std::optional<std::string> first_of(std::vector<Attempt> attempts, Time deadline, int stop_fd) {
  while (true) {
    std::erase_if(attempts, [](const Attempt& attempt) { return !attempt.is_open(); });
    if (attempts.empty()) return std::nullopt;
    std::vector<pollfd> waits;
    for (const Attempt& attempt : attempts) waits.push_back({attempt.fd(), POLLOUT, 0});
    waits.push_back({stop_fd, POLLIN, 0});
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    if (poll(waits.data(), waits.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) {
      return std::nullopt;
    }
    if (waits.back().revents != 0) return std::nullopt;
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      if (waits[i].revents == 0) continue;
      if (attempts[i].succeeded()) return attempts[i].address();
      attempts[i].end();
    }
  }
}

}  // namespace

std::vector<std::string> network_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* const address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);  // NOLINT
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) {
      addresses.emplace_back(text.data());
    }
  }
  return addresses;
}

std::vector<std::string> addresses_of(const std::string& name) {
  std::string reason;
  std::vector<std::string> addresses = find_addresses(name, reason);
  if (!reason.empty()) throw Unavailable("the name '{}' has no address: {}", name, reason);
  return addresses;
}

std::vector<std::string> find_addresses(const std::string& name, std::string& reason) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const bool bracketed = name.starts_with('[') && name.ends_with(']');
  const std::string host = bracketed ? name.substr(1, name.size() - 2) : name;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &wanted, &list); error != 0) {
    reason = gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      std::array<char, NI_MAXHOST> text{};
      if (getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) != 0) {
        continue;
      }
      addresses.push_back(family == AF_INET6 ? fmt::format("[{}]", text.data()) : text.data());
    }
  }
  return addresses;
}

HostFacts read_host_facts() {
  HostFacts facts;
  std::array<char, 256> name{};
  facts.name = gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", error);
  facts.identity = facts.name + " " + boot + " " + network.native();
  facts.addresses = network_addresses();
  return facts;
}

std::optional<std::string> find_reachable(std::span<const std::string> addresses,
                                          std::span<const std::string> own, std::uint16_t port,
                                          Time deadline, int stop_fd) {
  const auto is_own = [&](const std::string& address) {
    return std::find(own.begin(), own.end(), address) != own.end();
  };
  for (const bool own_ones : {false, true}) {
    std::vector<Attempt> attempts;
    for (const std::string& address : addresses) {
      if (is_own(address) == own_ones) attempts.emplace_back(address, port);
    }
    if (auto found = first_of(std::move(attempts), deadline, stop_fd)) return found;
  }
  return std::nullopt;
}

}  // namespace penstock::cluster
