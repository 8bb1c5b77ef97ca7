// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/projection/exchange_time.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "bench/statistics/distributions.h"

namespace penstock::scaling {
namespace {

/// ceil(log2 n).
double rounds(std::int64_t n) {
  return static_cast<double>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

/// 2 (n-1)/n: how often each byte passes a link of a ring.
double passes(std::int64_t n) { return 2 * static_cast<double>(n - 1) / static_cast<double>(n); }

}  // namespace

double ring_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha) {
  return 2 * static_cast<double>(n - 1) * alpha + passes(n) * bytes / bytes_per_s;
}

double tree_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha,
                    double efficiency) {
  if (n < 2) return 0;
  return 2 * rounds(n) * alpha + 2 * bytes / (efficiency * bytes_per_s);
}

double halving_doubling_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha) {
  return 2 * rounds(n) * alpha + passes(n) * bytes / bytes_per_s;
}

double parameter_server_seconds(std::int64_t n, std::int64_t servers, std::int64_t sharing,
                                double bytes, double bytes_per_s, double alpha) {
  const double workers = static_cast<double>(sharing);
  const double at_servers = static_cast<double>(n) / static_cast<double>(servers);
  return 2 * alpha + std::max(workers, at_servers) * bytes / bytes_per_s;
}

double colocated_servers_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha) {
  return n < 2 ? 0 : 2 * alpha + passes(n) * bytes / bytes_per_s;
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
