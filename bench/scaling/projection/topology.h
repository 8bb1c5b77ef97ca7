// SPDX-License-Identifier: Apache-2.0
// The machines that a projection is for, and how each way of exchanging gradients uses them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/options.h"

namespace penstock {

struct Topology {
  std::int64_t devices_per_host = 8;
  double local_bytes_per_s = 0;  ///< bus bandwidth between devices of a host, as nccl-tests has it
  double link_bytes_per_s = 0;   ///< of a host's links together, in each direction, as labelled
  double link_efficiency = 0;    ///< what of that an exchange gets
  double latency_s = 0, local_latency_s = 0;  ///< of a message between hosts, and inside of one
  double tree_efficiency = 0;
  std::int64_t servers = 0;       ///< parameter servers, each on a host of its own
  double bytes_per_gradient = 4;  ///< on the wire
  double slowdown = 0;            ///< of backward while an exchange goes on, as a share

  /// Bytes/s that an exchange between hosts gets.
  double between_hosts() const noexcept { return link_efficiency * link_bytes_per_s; }
  std::int64_t hosts_of(std::int64_t ranks) const noexcept {
    return (ranks + devices_per_host - 1) / devices_per_host;
  }
};

/// The keys of --topology, with defaults.
std::span<const OptionSpec> topology_options();
/// "devices=4,link=3.125": throws ConfigError.
Topology parse_topology(std::string_view text);

/// One way to exchange gradients.
struct ExchangeModel {
  std::string_view name, summary;
  /// Of one tensor of so many bytes on each of `ranks`, which fill one host after the other. One
  /// rank alone exchanges nothing, but with servers.
  double (*seconds)(double bytes, std::int64_t ranks, const Topology& topology);
};

/// ring, tree, hierarchical, ps, byteps.
std::span<const ExchangeModel> exchange_models();

}  // namespace penstock
