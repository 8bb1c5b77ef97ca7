// SPDX-License-Identifier: Apache-2.0
// Runs mpirun, and gets the standard output of rank 0 past it through a named pipe. mpirun of
// Open MPI 5.0 passes pieces of it on with standard error, or with the output of another rank.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "bench/run/processes/child_process.h"

namespace penstock::scaling {

/// Runs `mpirun`, whose arguments end before the program, with `program` as its ranks. Blocks as
/// ChildProcess::wait. If rank 0 runs on another machine, mpirun passes its output on.
ChildExit run_ranks(ChildCommand mpirun, const std::vector<std::string>& program,
                    const std::stop_token& stop = {});

}  // namespace penstock::scaling
