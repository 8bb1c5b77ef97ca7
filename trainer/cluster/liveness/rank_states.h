// SPDX-License-Identifier: Apache-2.0
// Who of a run's ranks is there, and who was lost: what rank 0 concludes from what it hears of the
// others. Pure values; times are the caller's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/rank_progress.h"

namespace penstock {

/// How long ranks are waited for.
struct RankDeadlines {
  Nanoseconds rendezvous = std::chrono::seconds(60);  ///< until all have joined
  Nanoseconds silence = std::chrono::seconds(30);     ///< between two signs of life
  Nanoseconds goodbye = std::chrono::seconds(10);     ///< the same at the end

  Nanoseconds silence_in(RankPhase phase) const {
    return phase >= RankPhase::gathering ? std::min(goodbye, silence) : silence;
  }
};

/// Where a rank runs.
struct RankPlace {
  std::string host;  ///< empty: not known
  std::int32_t pid = 0;
};

struct LostRank {
  std::int32_t rank = 0;  ///< kNobody: none of them in particular
  RankPlace place;
  RankState last;   ///< what was last heard of it
  std::string how;  ///< "its connection closed"
  static constexpr std::int32_t kNobody = -1;
};

/// "rank 2 (host b, pid 123) was lost while measuring, at step 57: its connection closed", and
/// further ones behind semicolons.
std::string to_text(std::span<const LostRank> lost);

class RankLedger {
 public:
  /// Of the ranks 0 to `size` - 1; `self` is always there.
  RankLedger(std::int32_t size, std::int32_t self, const RankDeadlines& deadlines, Time now);

  void arrived(std::int32_t rank, RankPlace place, Time now);
  void heard(std::int32_t rank, const RankState& state, Time now);
  /// Ends on its own account: what becomes of it afterwards is no loss.
  void left(std::int32_t rank);
  /// Says nothing of a rank that has not arrived.
  void closed(std::int32_t rank);
  /// A rank that came to a meeting has waited there for as long as it may.
  void overdue(std::int32_t rank, const RankState& state);

  /// Nobody: nothing is wrong. To be asked several times a second: where it was not, this process
  /// itself stood still, and silence and absence until then are forgiven.
  std::vector<LostRank> lost(Time now);
  /// "waiting for rank 1 to join (2 of 3 are here)". Empty: all have, or it is too early to speak
  /// of.
  std::string waiting_text(Time now) const;

 private:
  struct Entry {
    RankPlace place;
    RankState state;
    Time heard{};
    bool arrived = false, left = false, closed = false;
  };
  std::vector<LostRank> missing_at_meeting() const;
  LostRank loss(std::int32_t rank, std::string how) const;

  const std::int32_t self_;
  const RankDeadlines deadlines_;
  Time begin_;  // later by what this process stood still
  Time asked_;
  std::vector<Entry> entries_;
  std::int64_t overdue_meeting_ = 0;  // 0: none is
};

}  // namespace penstock
