// SPDX-License-Identifier: Apache-2.0
// The machine's processors, as Linux tells of them below /sys/devices/system: which share a core,
// and to which NUMA node they belong. The kernel's numbers are all small; what is not is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace penstock {

struct Cpu {
  std::int32_t id = 0;
  std::int32_t node = 0;
  std::int32_t core = 0;  ///< the first processor of its core, itself or a sibling
  bool operator==(const Cpu&) const = default;
};

/// "0-3,8" or "0-3+8": ascending or not, without repetitions. Throws ConfigError naming `what`.
std::vector<std::int32_t> parse_cpu_list(std::string_view text, std::string_view what);

/// Each of `cpus`, in the same order. Where `system` tells nothing of nodes or cores, all are of
/// node 0, and each is a core of its own.
std::vector<Cpu> read_cpu_topology(const std::vector<std::int32_t>& cpus,
                                   const std::filesystem::path& system = "/sys/devices/system");

/// Those on which the calling thread may run: its affinity, which its cgroup's cpuset has cut;
/// ascending.
std::vector<std::int32_t> allowed_cpus();

}  // namespace penstock
