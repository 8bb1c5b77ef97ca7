// SPDX-License-Identifier: Apache-2.0
// The machine's processors, and which thread of a pool runs on which. Linux's /sys/devices/system
// says which processors share a core, and to which NUMA node each belongs. The kernel's numbers are
// all small; larger ones are refused.
#pragma once

#include <sched.h>

#include <cstdint>
#include <filesystem>
#include <string>
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

struct PlaceChoice {
  /// "": the kernel places the threads, unless nodes are chosen. "auto": one thread per processor.
  /// It takes the nodes in turn, and uses the first processor of every core of a node before any
  /// second one. Otherwise a list of processors, used in its order.
  std::string cores;
  std::string nodes;  ///< "": all nodes; otherwise a list of nodes whose processors may be used
};

/// A processor for each of at most `threads` threads; fewer if there are not enough processors;
/// empty if none is chosen. Throws ConfigError for a processor or node that is not in `allowed`.
std::vector<Cpu> choose_places(std::int32_t threads, const std::vector<Cpu>& allowed,
                               const PlaceChoice& choice);

/// "thread 0 on core 2 (node 0), 1 on 3 (0)".
std::string describe_places(const std::vector<Cpu>& places);

/// Pins the calling thread to one processor for the lifetime of this object.
class PinnedThread {
 public:
  /// Throws ConfigError if the system refuses.
  explicit PinnedThread(const Cpu& cpu);
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;
  ~PinnedThread();

 private:
  cpu_set_t before_;
};

}  // namespace penstock
