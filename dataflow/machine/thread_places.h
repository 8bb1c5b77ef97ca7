// SPDX-License-Identifier: Apache-2.0
// Which processor each thread of a pool runs on, and keeping it there.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dataflow/placement/cpu_topology.h"

namespace penstock {

struct PlaceChoice {
  /// "": threads run where the kernel puts them, unless nodes are chosen; "auto": one a processor,
  /// on the nodes in turn, and on each node on every core before on its second processor; else a
  /// list of processors, taken in its order.
  std::string cores;
  std::string nodes;  ///< "": all; else a list of those whose processors may be taken
};

/// A processor for each of at most `threads` threads; empty: none is chosen. Fewer where there are
/// not enough processors for one each. Throws ConfigError for what is not among `allowed`.
std::vector<Cpu> choose_places(std::int32_t threads, const std::vector<Cpu>& allowed,
                               const PlaceChoice& choice);

/// "thread 0 on core 2 (node 0), 1 on 3 (0)".
std::string describe_places(const std::vector<Cpu>& places);

/// Keeps the calling thread on one processor, for as long as this lives.
class PinnedThread {
 public:
  /// Throws ConfigError where the system refuses.
  explicit PinnedThread(const Cpu& cpu);
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;
  ~PinnedThread();

 private:
  cpu_set_t before_;
};

}  // namespace penstock
