// SPDX-License-Identifier: Apache-2.0
// How long an exchange of gradients takes, by the textbook: pure functions of few numbers, SI
// units. n ranks (or hosts), S bytes of each, B bytes/s of the slowest link in each direction,
// alpha seconds of a message. Adding takes no time in them.
//
// Ring, tree, and halving and doubling: Thakur, Rabenseifner, Gropp, "Optimization of Collective
// Communication Operations in MPICH", IJHPCA 2005. Parameter servers and BytePS: Jiang et al., "A
// Unified Architecture for Accelerating Distributed DNN Training in Heterogeneous GPU/CPU
// Clusters", OSDI 2020.
#pragma once

#include <cstdint>

namespace penstock {

/// 2 (n-1) alpha + 2 (n-1)/n S/B.
double ring_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha);

/// 2 ceil(log2 n) alpha + 2 S/(e B): two trees, pipelined, of an efficiency e that is usually 0.85
/// to 0.95. One rank: 0.
double tree_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha,
                    double efficiency);

/// 2 ceil(log2 n) alpha + 2 (n-1)/n S/B (Rabenseifner).
double halving_doubling_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha);

/// k servers on machines of their own, pushing and pulling at once: max(w S/B, n S/(k B)) and two
/// messages, where w ranks share each worker's link. `n` counts ranks.
double parameter_server_seconds(std::int64_t n, std::int64_t servers, std::int64_t sharing,
                                double bytes, double bytes_per_s, double alpha);

/// A server beside each of n workers: as a ring in bytes, with two messages.
double colocated_servers_seconds(std::int64_t n, double bytes, double bytes_per_s, double alpha);

/// n hosts of GPUs and k <= n hosts of CPUs alone, all of them adding, in the shares that are best:
/// 2 n (n-1) S / ((n^2 + k n - 2 k) B), and two messages. k = 0: n hosts with a server each; k = n:
/// S/B. More than n servers are no better than n. One host: 0.
double byteps_seconds(std::int64_t n, std::int64_t servers, double bytes, double bytes_per_s,
                      double alpha);

/// What the slowest of n ranks takes more than their mean, in standard deviations: the expected
/// largest of n normal values, by Blom's approximation, the quantile at (n - 3/8) / (n + 1/4)
/// ("Statistical Estimates and Transformed Beta-Variables", 1958); at most 5 % off.
double slowest_of(std::int64_t n);

}  // namespace penstock
