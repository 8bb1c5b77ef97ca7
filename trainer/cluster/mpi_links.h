// SPDX-License-Identifier: Apache-2.0
// Links between ranks that are processes, through MPI's point-to-point messages. Receivers wait by
// asking, with a deadline, since MPI itself waits for ever for a process that is gone.
//
// No type of MPI is named here: whoever includes it need not know of MPI.
#pragma once

#include <memory>
#include <string_view>

#include "trainer/collectives/exchange_wait.h"
#include "trainer/collectives/link.h"

namespace penstock {

/// Throws DeviceError, in MPI's words, where an MPI function returned an error.
void check_mpi(int code, std::string_view what);

/// A communicator of links alone. Made by all ranks together, between MPI_Init and MPI_Finalize.
class MpiLinks {
 public:
  MpiLinks();
  ~MpiLinks();
  /// One at a time; this outlives it. Messages may be of any size.
  std::unique_ptr<Link> join(const ExchangeWait& wait);

 private:
  friend class MpiLink;
  struct Communicator;
  const std::unique_ptr<Communicator> communicator_;
};

/// MPI_Allreduce itself, as the call that blocks: what MPI does best, to compare with. It cannot be
/// given up, so that a process in which one lasts longer than the exchange's patience ends with a
/// message and exit code 5.
class MpiBlockingGroup final : public CollectiveGroup {
 public:
  /// Made by all ranks together. The exchange's device outlives it.
  MpiBlockingGroup(const Processes::Exchange& exchange, const Launch& launch);
  ~MpiBlockingGroup() override;
  std::unique_ptr<Collective> join(std::int32_t rank) override;
  std::string how() const override;

 private:
  friend class MpiBlockingCollective;
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace penstock
