// SPDX-License-Identifier: Apache-2.0
// Reads the machine's processors from Linux's /sys/devices/system: which processors share a core,
// and to which NUMA node each belongs. The kernel's numbers are all small; larger ones are refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace penstock {

struct Cpu {
  std::int32_t id = 0;
  std::int32_t node = 0;
  std::int32_t core = 0;  ///< number of the first processor of its core; may be itself
  bool operator==(const Cpu&) const = default;
};

/// Parses "0-3,8" or "0-3+8". The numbers may be in any order, but must not repeat. Throws
/// ConfigError that names `what`.
std::vector<std::int32_t> parse_cpu_list(std::string_view text, std::string_view what);

/// The topology of each of `cpus`, in the same order. If `system` has no data on nodes or cores,
/// all processors are on node 0, and each is its own core.
std::vector<Cpu> read_cpu_topology(const std::vector<std::int32_t>& cpus,
                                   const std::filesystem::path& system = "/sys/devices/system");

/// The processors on which the calling thread may run: its affinity, limited by its cgroup's
/// cpuset. In ascending order.
std::vector<std::int32_t> allowed_cpus();

}  // namespace penstock
