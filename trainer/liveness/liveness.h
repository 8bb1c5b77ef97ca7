// SPDX-License-Identifier: Apache-2.0
// Tells the processes of a run apart from their exchange which of them was lost: a thread of each
// rank sends rank 0 a sign of life every half second, with where it is, and rank 0 sends them its
// own. Whoever is killed closes its connection at once; whoever is stopped or cut off falls silent;
// whoever lives and does not come to where the others wait is found by their deadline. Then one
// rank, rank 0 or the lowest that is left, tells, and the process of every rank ends.
//
// It knows neither MPI nor any launcher, and costs each rank a thread that wakes ten times a second
// and sends two messages of 168 bytes a second; rank 0 sends as many to each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trainer/liveness/frame_socket.h"
#include "trainer/liveness/rank_ledger.h"

namespace penstock {

struct LivenessPlan {
  std::int32_t rank = 0, size = 1;
  RankPlace place;    ///< of this process
  std::string key{};  ///< the run's, the same for all ranks; at most 64 characters
  RankDeadlines deadlines{};
  /// Where every rank listens, by rank.
  std::vector<std::string> addresses{};
  /// On the thread, on rank 0: who is waited for, once that takes long and whenever it changes.
  std::function<void(const std::string&)> say{};
  /// On the thread, on one rank alone: these ranks were lost.
  std::function<void(std::span<const LostRank>)> tell{};
  /// On the thread, behind it: some were lost. Should end the process.
  std::function<void()> end{};
};

class Liveness {
 public:
  /// `listener` is the one at this rank's own address; `progress` outlives the object.
  Liveness(LivenessPlan plan, FrameListener listener, const RankProgress& progress);
  /// Says goodbye.
  ~Liveness();

  /// From any thread: this rank ends on its own account. Returns once that is sent, or after a
  /// moment. What becomes of others still counts.
  void leave();

 private:
  class Leave;
  class Side;
  class Hub;
  class Spoke;
  const std::unique_ptr<Leave> leave_;
  std::jthread thread_;
};

}  // namespace penstock
