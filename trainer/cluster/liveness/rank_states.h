// SPDX-License-Identifier: Apache-2.0
// Decides which ranks of a run are present and which were lost, from what rank 0 hears of the
// others. Pure values; the caller provides the times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/cluster/rank_progress.h"

namespace penstock::liveness {

/// Timeouts of waits for ranks.
struct RankDeadlines {
  Nanoseconds rendezvous = std::chrono::seconds(60);  ///< until all have joined
  Nanoseconds silence = std::chrono::seconds(30);     ///< between two signs of life
  Nanoseconds goodbye = std::chrono::seconds(10);     ///< between two signs of life at the end

  Nanoseconds silence_in(cluster::RankPhase phase) const {
    return phase >= cluster::RankPhase::gathering ? std::min(goodbye, silence) : silence;
  }
};

/// The host and process of a rank.
struct RankPlace {
  std::string host;  ///< empty: unknown
  std::int32_t pid = 0;
};

struct LostRank {
  std::int32_t rank = 0;  ///< kNobody: no rank in particular
  RankPlace place;
  cluster::RankState last;  ///< its last known state
  std::string how;          ///< "its connection closed"
  static constexpr std::int32_t kNobody = -1;
};

/// "rank 2 (host b, pid 123) was lost while measuring, at step 57: its connection closed". Further
/// ranks follow after semicolons.
std::string to_text(std::span<const LostRank> lost);

class RankStates {
 public:
  /// For the ranks 0 to `size` - 1; `self` is always present.
  RankStates(std::int32_t size, std::int32_t self, const RankDeadlines& deadlines, Time now);

  void arrived(std::int32_t rank, RankPlace place, Time now);
  void heard(std::int32_t rank, const cluster::RankState& state, Time now);
  /// The rank ends regularly; later events of it are no loss.
  void left(std::int32_t rank);
  /// Has no effect for a rank that has not arrived.
  void closed(std::int32_t rank);
  /// A rank has waited at a meeting for the maximum time.
  void overdue(std::int32_t rank, const cluster::RankState& state);

  /// Returns the lost ranks; empty: none. Must be called several times a second: a longer gap means
  /// that this process was stopped, so silence and absence before the call are forgiven.
  std::vector<LostRank> lost(Time now);
  /// "waiting for rank 1 to join (2 of 3 are here)". Empty if all have joined, or if it is too
  /// early for a message.
  std::string waiting_text(Time now) const;

 private:
  struct Entry {
    RankPlace place;
    cluster::RankState state;
    Time heard{};
    bool arrived = false, left = false, closed = false;
  };
  std::vector<LostRank> missing_at_meeting() const;
  LostRank loss(std::int32_t rank, std::string how) const;

  const std::int32_t self_;
  const RankDeadlines deadlines_;
  Time begin_;  // advanced by the time that this process was stopped
  Time asked_;
  std::vector<Entry> entries_;
  std::int64_t overdue_meeting_ = 0;  // 0: none
};

}  // namespace penstock::liveness
