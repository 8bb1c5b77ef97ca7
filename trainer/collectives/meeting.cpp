// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/meeting.h"

#include "dataflow/error.h"

namespace penstock::collectives {

void Meeting::meet() {
  std::unique_lock lock(mutex_);
  const std::uint64_t generation = generation_;
  if (++waiting_ == ranks_) {
    waiting_ = 0;
    ++generation_;
    clock_.wake(gate_);
    return;
  }
  if (!clock_.wait(lock, gate_, stop_, [&] { return generation_ != generation; })) {
    throw Error("the exchange between ranks was abandoned: the run is stopping");
  }
}

}  // namespace penstock::collectives
