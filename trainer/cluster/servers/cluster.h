// SPDX-License-Identifier: Apache-2.0
// The members of a run with parameter servers: the addresses in --ps-hosts and --worker-hosts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cluster {

struct Cluster {
  std::vector<std::string> ps_hosts, worker_hosts;  ///< HOST:PORT, by task
  std::string program;                              ///< name and version, equal for all members

  std::int32_t servers() const noexcept { return static_cast<std::int32_t>(ps_hosts.size()); }
  std::int32_t workers() const noexcept { return static_cast<std::int32_t>(worker_hosts.size()); }
  /// "ps task 0 (host:2222)".
  std::string server(std::int32_t task) const;
  /// "worker task 1 (host:2230)".
  std::string worker(std::int32_t task) const;
  /// Text that is equal on all members of the run.
  std::string describe() const;
};

/// Splits at commas. Throws ConfigError, which names `flag`, if an entry is not HOST:PORT or occurs
/// twice.
std::vector<std::string> parse_hosts(std::string_view text, std::string_view flag);

/// The host of HOST:PORT.
std::string host_of(std::string_view address);

/// "tcp://127.0.0.1:2222" for "localhost:2222": the host's first IPv4 address, else IPv6. Throws
/// ConfigError if the name has no address.
std::string numeric_endpoint(std::string_view address);

}  // namespace penstock::cluster
