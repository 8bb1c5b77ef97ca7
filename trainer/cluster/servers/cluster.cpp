// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/net/zmq_endpoint.h"
#include "trainer/cluster/host.h"

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
  std::string reason;
  const std::vector<std::string> found = find_addresses(host, reason);
  if (!reason.empty()) {
    throw ConfigError("host '{}' of {}: {}; give a name or an address that is known here", host,
                      address, reason);
  }
  if (found.empty()) throw ConfigError("host '{}' of {} has no address", host, address);
  return fmt::format("tcp://{}:{}", found.front(), port);
}

}  // namespace penstock::cluster
