// SPDX-License-Identifier: Apache-2.0
// Describes the machines of a projection, and how each exchange algorithm uses them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/options.h"

namespace penstock::scaling {

struct Topology {
  std::int64_t devices_per_host = 8;
  double local_bytes_per_s = 0;  ///< bus bandwidth between devices of a host, as in nccl-tests
  double link_bytes_per_s = 0;   ///< nominal, of all links of a host together, in each direction
  double link_efficiency = 0;    ///< share of the nominal bandwidth that an exchange reaches
  double latency_s = 0, local_latency_s = 0;  ///< per message: between hosts, inside a host
  double tree_efficiency = 0;
  std::int64_t servers = 0;       ///< parameter servers, each on a separate host
  double bytes_per_gradient = 4;  ///< on the network
  double slowdown = 0;            ///< of backward during an exchange, as a share

  /// Bytes/s of an exchange between hosts.
  double between_hosts() const noexcept { return link_efficiency * link_bytes_per_s; }
  std::int64_t hosts_of(std::int64_t ranks) const noexcept {
    return (ranks + devices_per_host - 1) / devices_per_host;
  }
};

/// The keys of --topology, with defaults.
std::span<const OptionSpec> topology_options();
/// Parses "devices=4,link=3.125". Throws ConfigError.
Topology parse_topology(std::string_view text);

/// One algorithm for exchanging gradients.
struct ExchangeModel {
  std::string_view name, summary;
  /// Seconds for one tensor of `bytes` on each of `ranks`, which fill one host after the other. A
  /// single rank exchanges nothing, except with parameter servers.
  double (*seconds)(double bytes, std::int64_t ranks, const Topology& topology);
};

/// ring, tree, hierarchical, ps, byteps.
std::span<const ExchangeModel> exchange_models();

}  // namespace penstock::scaling
