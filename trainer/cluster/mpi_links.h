// SPDX-License-Identifier: Apache-2.0
// Links between ranks that are processes, through MPI point-to-point messages. Receivers poll with
// a deadline, because MPI itself waits forever for a process that is gone.
//
// The header names no MPI type, so files that include it need no MPI.
#pragma once

#include <memory>
#include <string_view>

#include "trainer/cluster/exchange_wait.h"
#include "trainer/collectives/link.h"

namespace penstock::cluster {

/// Throws DeviceError with MPI's message if an MPI function returned an error.
void check_mpi(int code, std::string_view what);

/// A communicator only for links. All ranks make it together, between MPI_Init and MPI_Finalize.
class MpiLinks {
 public:
  MpiLinks();
  ~MpiLinks();
  /// Makes the link of this rank; at most one at a time. This object outlives it. Messages may have
  /// any size.
  std::unique_ptr<collectives::Link> join(const ExchangeWait& wait);

 private:
  friend class MpiLink;
  struct Communicator;
  const std::unique_ptr<Communicator> communicator_;
};

}  // namespace penstock::cluster
