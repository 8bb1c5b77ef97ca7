// SPDX-License-Identifier: Apache-2.0
// Finds lost ranks of a run, independently of their exchange. A thread of each rank sends rank 0 a
// sign of life with its state every half second, and rank 0 sends its own to all ranks. A killed
// rank closes its connection at once. A stopped or disconnected rank falls silent. A rank that
// lives but does not reach a meeting is found by the deadline of the waiting ranks. One rank (rank
// 0, or the lowest one left) then reports the loss, and the process of every rank ends.
//
// It depends neither on MPI nor on a launcher. Each rank has one more thread, which wakes ten times
// a second and sends two messages of 168 bytes a second; rank 0 sends as many to each rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trainer/cluster/liveness/frame_socket.h"
#include "trainer/cluster/liveness/rank_states.h"

namespace penstock::liveness {

/// The host and process of a rank.
struct RankPlace {
  std::string host;  ///< empty: unknown
  std::int32_t pid = 0;
};

struct LivenessPlan {
  std::int32_t rank = 0, size = 1;
  RankPlace place;    ///< of this process
  std::string key{};  ///< equal for all ranks of the run; at most 64 characters
  RankDeadlines deadlines{};
  /// The listening address of every rank, by rank.
  std::vector<std::string> addresses{};
  /// Called on the thread, on rank 0: which ranks are awaited, after a long wait and at each
  /// change.
  std::function<void(const std::string&)> say{};
  /// Called on the thread, on only one rank: these ranks were lost.
  std::function<void(std::span<const LostRank>)> tell{};
  /// Called on the thread, after `tell`: some ranks were lost. Should end the process.
  std::function<void()> end{};
};

class Liveness {
 public:
  /// `listener` listens at this rank's address; `progress` outlives the object.
  Liveness(LivenessPlan plan, FrameListener listener, const cluster::RankProgress& progress);
  /// Tells the other ranks that it leaves.
  ~Liveness();

  /// May be called from any thread: this rank ends regularly. Returns once that is sent, or after a
  /// short time. Losses of other ranks still count.
  void leave();

 private:
  class Leave;
  class Side;
  class Hub;
  class Spoke;
  const std::unique_ptr<Leave> leave_;
  std::jthread thread_;
};

}  // namespace penstock::liveness
