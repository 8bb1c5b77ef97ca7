// SPDX-License-Identifier: Apache-2.0
// Who belongs to a run with parameter servers: addresses, as --ps-hosts and --worker-hosts list
// them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct Cluster {
  std::vector<std::string> ps_hosts, worker_hosts;  ///< HOST:PORT, by task
  std::string program;                              ///< name and version, the same for all

  std::int32_t servers() const noexcept { return static_cast<std::int32_t>(ps_hosts.size()); }
  std::int32_t workers() const noexcept { return static_cast<std::int32_t>(worker_hosts.size()); }
  /// "ps task 0 (host:2222)".
  std::string server(std::int32_t task) const;
  /// "worker task 1 (host:2230)".
  std::string worker(std::int32_t task) const;
  /// Lines that all of the run have alike.
  std::string describe() const;
};

/// Splits at commas. Throws ConfigError, which names `flag`, where one is no HOST:PORT, or there
/// twice.
std::vector<std::string> parse_hosts(std::string_view text, std::string_view flag);

/// The host of HOST:PORT.
std::string host_of(std::string_view address);

/// "tcp://127.0.0.1:2222" for "localhost:2222": the first IPv4 address of the host, else IPv6.
/// Throws ConfigError where the name has none.
std::string numeric_endpoint(std::string_view address);

}  // namespace penstock
