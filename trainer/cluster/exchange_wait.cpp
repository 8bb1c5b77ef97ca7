// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/exchange_wait.h"

#include <algorithm>
#include <string>

#include "dataflow/error.h"

namespace penstock::cluster {

bool ExchangeWait::Attempt::lasts() {
  const Time now = wait_.clock_->now();
  if (wait_.stopping_.stop_requested()) {
    last_moment_ = std::min(last_moment_, now + Processes::kGrace);
  }
  if (wait_.abandon_.stop_requested() || now >= last_moment_) {
    throw Error("the run is being stopped");
  }
  if (now >= deadline_) {
    throw TimeoutError("rank " + std::to_string(wait_.rank_) + " waited " +
                       std::to_string(wait_.patience_ / std::chrono::seconds(1)) +
                       " s in the exchange for other ranks: one of them hangs, is stopped, or "
                       "cannot be reached; see the messages of the launcher, or raise --timeout");
  }
  return now - begin_ > kSpin;
}

}  // namespace penstock::cluster
