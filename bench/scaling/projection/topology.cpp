// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/projection/topology.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "bench/statistics/distributions.h"
#include "dataflow/error.h"

namespace penstock::scaling {

namespace {

constexpr double kGiga = 1e9, kMicro = 1e-6;
constexpr std::int64_t kMostDevices = 1024, kMostServers = 65536;

// Latencies are from NCCL 2.28's tuner, protocol Simple, for a ring: 14 us over a network, 3.4 us
// over NVLink. The efficiency of trees is from the same tuner. The link efficiency fits Horovod's
// published VGG-16 on 512 GPUs; plain sockets reach far less.
constexpr std::array kOptions = {
    OptionSpec{"devices", "8", "devices per host"},
    OptionSpec{"local", "100", "bus bandwidth between devices of a host in GB/s"},
    OptionSpec{"link", "12.5", "bandwidth of a host's links in GB/s, per direction"},
    OptionSpec{"efficiency", "0.85", "share of the link bandwidth that an exchange reaches"},
    OptionSpec{"latency_us", "14", "latency between hosts in microseconds"},
    OptionSpec{"local_latency_us", "3.4", "latency inside a host in microseconds"},
    OptionSpec{"tree_efficiency", "0.92", "share of the bandwidth that two trees reach"},
    OptionSpec{"servers", "4", "parameter servers, one per host"},
    OptionSpec{"bytes", "4", "bytes per gradient element on the wire: 4 or 2"},
    OptionSpec{"slowdown", "0", "share by which an exchange slows backward"},
};

double amount(const Options& options, std::string_view name, double low, double high) {
  const double value = options.real(name);
  if (value >= low && value <= high) return value;
  throw ConfigError("--topology {}={}; expected a number from {} to {}", name, options.text(name),
                    low, high);
}

std::int64_t count(const Options& options, std::string_view name, std::int64_t most) {
  const std::int64_t value = options.integer(name);
  if (value >= 1 && value <= most) return value;
  throw ConfigError("--topology {}={}; expected a whole number from 1 to {}", name, value, most);
}

/// Ranks of the fullest host.
std::int64_t local_ranks(std::int64_t ranks, const Topology& topology) {
  return std::min(ranks, topology.devices_per_host);
}

/// Reduce-scatter and all-gather inside a host.
double inside_host(double bytes, std::int64_t ranks, const Topology& topology) {
  return ring_seconds(local_ranks(ranks, topology), bytes, topology.local_bytes_per_s,
                      topology.local_latency_s);
}

/// A datum passes 2 (n-1) hops. 2 (m-1) of them connect two of the m hosts, as NCCL's tuner counts.
/// The ring passes each host's link once.
double ring(double bytes, std::int64_t ranks, const Topology& topology) {
  const std::int64_t hosts = topology.hosts_of(ranks);
  if (hosts < 2) return inside_host(bytes, ranks, topology);
  const auto between = 2 * static_cast<double>(hosts - 1);
  const double inside = 2 * static_cast<double>(ranks - 1) - between;
  const double slowest = std::min(topology.between_hosts(), topology.local_bytes_per_s);
  return ring_seconds(ranks, bytes, slowest, 0) + between * topology.latency_s +
         inside * topology.local_latency_s;
}

double tree(double bytes, std::int64_t ranks, const Topology& topology) {
  const std::int64_t hosts = topology.hosts_of(ranks), local = local_ranks(ranks, topology);
  if (hosts < 2) {
    return tree_seconds(ranks, bytes, topology.local_bytes_per_s, topology.local_latency_s,
                        topology.tree_efficiency);
  }
  const double bandwidth = std::min(topology.between_hosts(), topology.local_bytes_per_s);
  const auto chain = 2 * static_cast<double>(local - 1);
  return tree_seconds(hosts, bytes, bandwidth, topology.latency_s, topology.tree_efficiency) +
         chain * topology.local_latency_s;
}

/// Scatters inside each host first; each device then exchanges its part with the other hosts.
/// Together, the devices of a host send as much over its link as a ring of hosts does.
double hierarchical(double bytes, std::int64_t ranks, const Topology& topology) {
  return inside_host(bytes, ranks, topology) + ring_seconds(topology.hosts_of(ranks), bytes,
                                                            topology.between_hosts(),
                                                            topology.latency_s);
}

double servers(double bytes, std::int64_t ranks, const Topology& topology) {
  return parameter_server_seconds(ranks, topology.servers, local_ranks(ranks, topology), bytes,
                                  topology.between_hosts(), topology.latency_s);
}

double byteps(double bytes, std::int64_t ranks, const Topology& topology) {
  return inside_host(bytes, ranks, topology) +
         byteps_seconds(topology.hosts_of(ranks), topology.servers, bytes, topology.between_hosts(),
                        topology.latency_s);
}

constexpr std::array kModels = {
    ExchangeModel{"ring", "one ring through all devices", ring},
    ExchangeModel{"tree", "two trees over the hosts, a chain inside each", tree},
    ExchangeModel{"hierarchical", "inside each host, then a ring of hosts", hierarchical},
    ExchangeModel{"ps", "parameter servers on separate hosts; every device pushes and pulls",
                  servers},
    ExchangeModel{"byteps", "inside each host, then all hosts and servers adding shares", byteps},
};

/// ceil(log2 n).
double rounds(std::int64_t n) {
  return static_cast<double>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

/// 2 (n-1)/n: how often each byte passes a link of a ring.
double passes(std::int64_t n) { return 2 * static_cast<double>(n - 1) / static_cast<double>(n); }

}  // namespace

std::span<const OptionSpec> topology_options() { return kOptions; }

Topology parse_topology(std::string_view text) {
  const std::string component = text.empty() ? "topology" : "topology:" + std::string(text);
  const Options options("--topology", kOptions, parse_component(component));
  Topology topology;
  topology.devices_per_host = count(options, "devices", kMostDevices);
  topology.local_bytes_per_s = kGiga * amount(options, "local", 1e-3, 1e6);
  topology.link_bytes_per_s = kGiga * amount(options, "link", 1e-3, 1e6);
  topology.link_efficiency = amount(options, "efficiency", 1e-3, 1);
  topology.latency_s = kMicro * amount(options, "latency_us", 0, 1e6);
  topology.local_latency_s = kMicro * amount(options, "local_latency_us", 0, 1e6);
  topology.tree_efficiency = amount(options, "tree_efficiency", 1e-3, 1);
  topology.servers = count(options, "servers", kMostServers);
  topology.bytes_per_gradient = amount(options, "bytes", 0.125, 8);
  topology.slowdown = amount(options, "slowdown", 0, 10);
  return topology;
}

std::span<const ExchangeModel> exchange_models() { return kModels; }

double ring_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha) {
  return 2 * static_cast<double>(n - 1) * alpha + passes(n) * bytes / bytes_per_s;
}

double tree_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha,
                    double efficiency) {
  if (n < 2) return 0;
  return 2 * rounds(n) * alpha + 2 * bytes / (efficiency * bytes_per_s);
}

double parameter_server_seconds(std::int64_t n, std::int64_t servers, std::int64_t sharing,
                                double bytes, double bytes_per_s, double alpha) {
  const double workers = static_cast<double>(sharing);
  const double at_servers = static_cast<double>(n) / static_cast<double>(servers);
  return 2 * alpha + std::max(workers, at_servers) * bytes / bytes_per_s;
}

double byteps_seconds(std::int64_t n, std::int64_t servers, double bytes, double bytes_per_s,
                      double alpha) {
  if (n < 2) return 0;
  const auto hosts = static_cast<double>(n);
  const auto k = static_cast<double>(std::min(servers, n));
  const double share = 2 * hosts * (hosts - 1) / (hosts * hosts + k * hosts - 2 * k);
  return 2 * alpha + share * bytes / bytes_per_s;
}

double slowest_of(std::int64_t n) {
  if (n < 2) return 0;
  const auto count = static_cast<double>(n);
  return statistics::student_t_quantile((count - 0.375) / (count + 0.25),
                                        std::numeric_limits<double>::infinity());
}

}  // namespace penstock::scaling
