// SPDX-License-Identifier: Apache-2.0
// Replaces mpi.cpp in builds without MPI, and in the program of a wheel.
#include "dataflow/error.h"
#include "trainer/cluster/processes.h"

namespace penstock::cluster {

std::unique_ptr<Processes> join_processes(const Launch&, Clock&, Nanoseconds) {
  throw Unavailable(
      "joining the processes that mpirun started: this program was built without MPI, as the "
      "program of a wheel is; install libopenmpi-dev and build Penstock from its sources");
}

}  // namespace penstock::cluster
