// SPDX-License-Identifier: Apache-2.0
// Describes the machines of a projection, and how each exchange algorithm uses them: the time of a
// gradient exchange by textbook formulas. Pure functions; SI units. n ranks (or hosts), S bytes of
// each, B bytes/s of the slowest link in each direction, alpha seconds per message. Adding takes no
// time.
//
// Ring and tree: Thakur, Rabenseifner, Gropp, "Optimization of Collective
// Communication Operations in MPICH", IJHPCA 2005. Parameter servers and BytePS: Jiang et al., "A
// Unified Architecture for Accelerating Distributed DNN Training in Heterogeneous GPU/CPU
// Clusters", OSDI 2020.
#pragma once

#include <cstdint>
#include <span>
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

/// 2 (n-1) alpha + 2 (n-1)/n S/B.
double ring_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha);

/// 2 ceil(log2 n) alpha + 2 S/(e B): two pipelined trees. The efficiency e is usually 0.85 to 0.95.
/// One rank: 0.
double tree_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha,
                    double efficiency);

/// k servers on separate machines, with simultaneous push and pull: max(w S/B, n S/(k B)) and two
/// messages. w ranks share each worker's link (`sharing`). `n` counts ranks.
double parameter_server_seconds(std::int64_t n, std::int64_t servers, std::int64_t sharing,
                                double bytes, double bytes_per_s, double alpha);

/// n GPU hosts and k <= n CPU hosts all add, in the best shares: 2 n (n-1) S / ((n^2 + k n - 2 k)
/// B), and two messages. k = 0: n hosts with a server each; k = n: S/B. More than n servers are no
/// better than n. One host: 0.
double byteps_seconds(std::int64_t n, std::int64_t servers, double bytes, double bytes_per_s,
                      double alpha);

/// How much longer the slowest of n ranks takes than their mean, in standard deviations. It is the
/// expected largest of n normal values, by Blom's approximation: the quantile at
/// (n - 3/8) / (n + 1/4) ("Statistical Estimates and Transformed Beta-Variables", 1958). The error
/// is at most 5 %.
double slowest_of(std::int64_t n);

}  // namespace penstock::scaling
