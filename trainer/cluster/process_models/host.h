// SPDX-License-Identifier: Apache-2.0
// Which host a process runs on, and how others reach it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"

namespace penstock {

struct HostFacts {
  /// Equal for processes that reach each other without a network: one kernel, one network
  /// namespace.
  std::string identity;
  std::string name;                    ///< for messages
  std::vector<std::string> addresses;  ///< IPv4, of interfaces that are up, without loopback
};

HostFacts read_host_facts();

/// The first of `addresses` at which a TCP connection to `port` is accepted before `deadline`,
/// those that are among `own` tried last; nothing: none is, or `stop_fd` became readable.
std::optional<std::string> find_reachable(std::span<const std::string> addresses,
                                          std::span<const std::string> own, std::uint16_t port,
                                          Time deadline, int stop_fd);

}  // namespace penstock
