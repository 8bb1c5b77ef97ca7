// SPDX-License-Identifier: Apache-2.0
// Chooses the processor of each thread of a pool, and pins threads to processors.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dataflow/machine/cpu_topology.h"

namespace penstock {

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
