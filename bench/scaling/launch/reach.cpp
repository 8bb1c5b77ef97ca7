// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/launch/reach.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "bench/run/child_process.h"
#include "bench/scaling/launch/mpirun.h"
#include "dataflow/error.h"

namespace penstock::scaling {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(30);

std::string own_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

bool same_address(const sockaddr& a, const sockaddr& b) {
  if (a.sa_family != b.sa_family) return false;
  if (a.sa_family == AF_INET) {
    const auto& x = reinterpret_cast<const sockaddr_in&>(a);
    const auto& y = reinterpret_cast<const sockaddr_in&>(b);
    return x.sin_addr.s_addr == y.sin_addr.s_addr;
  }
  if (a.sa_family != AF_INET6) return false;
  const auto& x = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& y = reinterpret_cast<const sockaddr_in6&>(b);
  return std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
}

}  // namespace

bool is_local(const std::string& name) {
  if (name == "localhost") return true;  // also without /etc/hosts
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, nullptr, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  ifaddrs* listed = nullptr;
  if (getifaddrs(&listed) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(listed, &freeifaddrs);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    for (const ifaddrs* own = listed; own != nullptr; own = own->ifa_next) {
      if (own->ifa_addr != nullptr && same_address(*own->ifa_addr, *address->ai_addr)) return true;
    }
  }
  return false;
}

std::vector<std::string> names_of_machines(std::span<const Host> hosts, const std::string& agent,
                                           const std::stop_token& stop) {
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    if (is_local(host.name)) {
      names.push_back(own_name());
      continue;
    }
    std::vector<std::string> words = split_words(agent);
    words.insert(words.end(), {host.name, "hostname"});
    ChildProcess child({.arguments = words, .timeout = kPatience});
    const ChildExit& exit = child.wait(stop);
    const std::vector<std::string> said = split_words(exit.output);
    if (exit.cause != ChildExit::Cause::ended || exit.code != 0 || said.empty()) {
      throw Unavailable(fmt::format(
          "cannot reach {} of --hosts: `{} {} hostname` {}; it must work without asking for input",
          host.name, agent, host.name, exit.describe()));
    }
    names.push_back(said.front());
  }
  return names;
}

bool any_twice(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) != names.end();
}

}  // namespace penstock::scaling
