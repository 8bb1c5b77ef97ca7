// SPDX-License-Identifier: Apache-2.0
// The main function of a program of which mpirun or start_ranks.py starts one process per rank.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "dataflow/clock.h"
#include "trainer/cluster/processes.h"

namespace penstock {

/// Joins the other processes and returns what `body` returns; 2 if it throws, or if no launcher
/// started this process.
inline int run_as_rank(const std::function<int(cluster::Processes&, Clock&)>& body) {
  try {
    const std::optional<cluster::Launch> launch =
        cluster::read_launch([](const char* name) { return std::getenv(name); });
    if (!launch) {
      fmt::print(stderr, "start it with mpirun or tests/support/start_ranks.py\n");
      return 2;
    }
    SteadyClock clock;
    const std::unique_ptr<cluster::Processes> processes = cluster::join_processes(*launch, clock);
    try {
      return body(*processes, clock);
    } catch (const std::exception& error) {
      // Printed before this rank leaves: the others may not come, and MPI then ends all.
      fmt::print(stderr, "{}\n", error.what());
      return 2;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}

}  // namespace penstock
