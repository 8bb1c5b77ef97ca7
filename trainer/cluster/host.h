// SPDX-License-Identifier: Apache-2.0
// Finds out which host a process runs on and how other hosts reach it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"

namespace penstock::cluster {

/// IPv4, of interfaces that are up, without loopback.
std::vector<std::string> network_addresses();

/// The addresses of a host's name, such as "192.0.2.1" and behind them "[2001:db8::1]". The name
/// may be such an address. Throws Unavailable, with the name and the reason.
std::vector<std::string> addresses_of(const std::string& name);
/// The same. If the name has no address, sets `reason` instead.
std::vector<std::string> find_addresses(const std::string& name, std::string& reason);

struct HostFacts {
  /// Equal for processes that reach each other without a network: same kernel, same network
  /// namespace.
  std::string identity;
  std::string name;                    ///< for messages
  std::vector<std::string> addresses;  ///< network_addresses()
};

HostFacts read_host_facts();

/// Returns the first of `addresses` that accepts a TCP connection to `port` before `deadline`;
/// addresses that are also in `own` are tried last. Nothing: none accepts, or `stop_fd` became
/// readable.
std::optional<std::string> find_reachable(std::span<const std::string> addresses,
                                          std::span<const std::string> own, std::uint16_t port,
                                          Time deadline, int stop_fd);

}  // namespace penstock::cluster
