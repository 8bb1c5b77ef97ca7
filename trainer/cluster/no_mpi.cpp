// SPDX-License-Identifier: Apache-2.0
// Replaces mpi.cpp in builds without MPI, and in the program of a wheel.
#include "dataflow/error.h"
#include "trainer/cluster/processes.h"

namespace penstock::cluster {

const bool kHasMpi = false;

std::unique_ptr<Processes> join_mpi_job(const Launch&, Clock&, Nanoseconds) {
  throw Unavailable(
      "joining the processes that mpirun started: this program was built without MPI, as the "
      "program of a wheel is; give --rendezvous HOST:PORT, where ranks meet without MPI, with a "
      "host of rank 0 and a free port there");
}

}  // namespace penstock::cluster
