// SPDX-License-Identifier: Apache-2.0
// Decides which members of a run are present and which were lost, from what one of them hears of
// the others: rank 0 of the other ranks, a rank of rank 0, a parameter server of its workers, a
// worker of its servers. Pure values; the caller provides the times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/cluster/rank_progress.h"

namespace penstock::liveness {

/// Timeouts of waits for members.
struct RankDeadlines {
  Nanoseconds rendezvous = std::chrono::seconds(60);  ///< until all have joined
  Nanoseconds silence = std::chrono::seconds(30);     ///< between two signs of life
  Nanoseconds goodbye = std::chrono::seconds(10);     ///< between two signs of life at the end

  Nanoseconds silence_in(cluster::RankPhase phase) const {
    return phase >= cluster::RankPhase::gathering ? std::min(goodbye, silence) : silence;
  }
};

struct LostRank {
  static constexpr std::int32_t kNone = -1;
  std::int32_t rank = kNone;  ///< kNone: no rank in particular
  std::string name;           ///< "rank 2 (host b, pid 123)"
  cluster::RankState last;    ///< its last known state
  std::string how;            ///< "its connection closed"
};

/// "rank 2 (host b, pid 123) was lost while measuring, at step 57: its connection closed". Further
/// ranks follow after semicolons.
std::string to_text(std::span<const LostRank> lost);

class RankStates {
 public:
  /// One name for each member. `self` is this process, which is always present; LostRank::kNone:
  /// it is no member.
  RankStates(std::vector<std::string> names, std::int32_t self, const RankDeadlines& deadlines,
             Time now);

  void arrived(std::int32_t rank, std::string name, Time now);
  void heard(std::int32_t rank, const cluster::RankState& state, Time now);
  /// The rank ends regularly; later events of it are no loss.
  void left(std::int32_t rank);
  /// Has no effect for a rank that has not arrived.
  void closed(std::int32_t rank);
  /// A rank has waited at a meeting for the maximum time.
  void overdue(std::int32_t rank, const cluster::RankState& state);

  bool has_arrived(std::int32_t rank) const { return entry(rank).arrived; }
  bool has_left(std::int32_t rank) const { return entry(rank).left; }
  bool all_arrived() const;
  const cluster::RankState& state(std::int32_t rank) const { return entry(rank).state; }

  /// The lost ranks; empty: none. Must be called several times a second: a longer gap means that
  /// this process was stopped, so silence and absence before the call are forgiven.
  std::vector<LostRank> lost(Time now);
  /// The rank as a lost one, for a reason that the caller found out.
  LostRank loss(std::int32_t rank, std::string how) const;
  /// "waiting for rank 1 to join (2 of 3 are here)". Empty if all have joined, or if it is too
  /// early for a message.
  std::string waiting_text(Time now) const;

 private:
  struct Entry {
    std::string name;
    cluster::RankState state;
    Time heard{};
    bool arrived = false, left = false, closed = false;
  };
  const Entry& entry(std::int32_t rank) const { return entries_[static_cast<std::size_t>(rank)]; }
  Entry& entry(std::int32_t rank) { return entries_[static_cast<std::size_t>(rank)]; }
  std::int32_t size() const noexcept { return static_cast<std::int32_t>(entries_.size()); }
  std::vector<LostRank> missing_at_meeting() const;

  std::int32_t self_;
  RankDeadlines deadlines_;
  Time begin_;  // advanced by the time that this process was stopped
  Time asked_;
  std::vector<Entry> entries_;
  std::int64_t overdue_meeting_ = 0;  // 0: none
};

}  // namespace penstock::liveness
