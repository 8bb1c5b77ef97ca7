// SPDX-License-Identifier: Apache-2.0
// In place of mpi.cpp where there is no MPI.
#include "dataflow/error.h"
#include "trainer/processes.h"

namespace penstock {

std::unique_ptr<Processes> join_processes(const Launch&, Clock&, Nanoseconds) {
  throw Unavailable(
      "joining the processes that mpirun started: this program was built without MPI; install "
      "libopenmpi-dev and configure again");
}

}  // namespace penstock
