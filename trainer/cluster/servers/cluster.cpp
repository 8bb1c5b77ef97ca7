// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/cluster.h"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <memory>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/net/zmq_endpoint.h"

namespace penstock::cluster {

std::string Cluster::server(std::int32_t task) const {
  return fmt::format("ps task {} ({})", task, ps_hosts[static_cast<std::size_t>(task)]);
}

std::string Cluster::worker(std::int32_t task) const {
  return fmt::format("worker task {} ({})", task, worker_hosts[static_cast<std::size_t>(task)]);
}

std::string Cluster::describe() const {
  return fmt::format("{}\n--ps-hosts {}\n--worker-hosts {}\n", program, join(ps_hosts, ","),
                     join(worker_hosts, ","));
}

std::vector<std::string> parse_hosts(std::string_view text, std::string_view flag) {
  std::vector<std::string> hosts;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string host(text.substr(0, comma));
    const std::size_t colon = host.rfind(':');
    if (colon == std::string::npos || colon == 0 || host.ends_with('*')) {
      throw ConfigError("{} has '{}'; expected HOST:PORT, separated by commas", flag, host);
    }
    try {
      static_cast<void>(net::parse_endpoint("tcp://" + host));  // throws if the port is invalid
    } catch (const ConfigError& error) {
      throw ConfigError("{}: {}", flag, error.what());
    }
    if (std::find(hosts.begin(), hosts.end(), host) != hosts.end()) {
      throw ConfigError("{} has '{}' twice; give each task a different address", flag, host);
    }
    hosts.push_back(host);
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

std::string host_of(std::string_view address) {
  return std::string(address.substr(0, address.rfind(':')));
}

std::string numeric_endpoint(std::string_view address) {
  std::string host = host_of(address);
  const std::string port(address.substr(address.rfind(':') + 1));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) {
    throw ConfigError("host '{}' of {}: {}; give a name or an address that is known here", host,
                      address, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  const addrinfo* chosen = list;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET) {
      chosen = entry;
      break;
    }
  }
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(chosen->ai_addr, chosen->ai_addrlen, text.data(), text.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    throw ConfigError("host '{}' of {} has no address", host, address);
  }
  const bool six = chosen->ai_family == AF_INET6;
  return fmt::format("tcp://{}{}{}:{}", six ? "[" : "", text.data(), six ? "]" : "", port);
}

}  // namespace penstock::cluster
