// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/liveness/rank_states.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Rank 0's ledger of three ranks; time passes in steps of a tenth of a second.
class Ledger : public ::testing::Test {
 protected:
  Ledger() {
    accounts_.arrived(1, "rank 1 (host a, pid 101)", now_);
    accounts_.arrived(2, "rank 2 (host b, pid 102)", now_);
  }
  static std::vector<std::string> names(std::size_t ranks) {
    std::vector<std::string> names;
    for (std::size_t rank = 0; rank < ranks; ++rank) names.push_back(fmt::format("rank {}", rank));
    return names;
  }
  static cluster::RankState training(std::int64_t step, std::int64_t meetings = 0) {
    return {.phase = cluster::RankPhase::training,
            .waiting = false,
            .step = step,
            .warm_up = 10,
            .meetings = meetings};
  }
  /// Lets time pass while these ranks are heard.
  std::string pass(Nanoseconds time, const std::vector<std::int32_t>& heard) {
    std::string text;
    for (const Time end = now_ + time; now_ < end && text.empty();) {
      now_ += 100ms;
      for (const std::int32_t rank : heard) accounts_.heard(rank, state_, now_);
      text = liveness::to_text(accounts_.lost(now_));
    }
    return text;
  }

  Time now_{100s};
  cluster::RankState state_ = training(66);
  liveness::RankStates accounts_{
      names(3), 0, {.rendezvous = 60s, .silence = 30s, .goodbye = 10s}, now_};
};

TEST_F(Ledger, NoRankIsLostWhileAllAreHeard) { EXPECT_EQ(pass(100s, {1, 2}), ""); }

TEST_F(Ledger, AClosedConnectionIsNamedWithPlacePhaseAndStep) {
  accounts_.heard(2, state_, now_);
  accounts_.closed(2);
  EXPECT_EQ(pass(1s, {1}),
            "rank 2 (host b, pid 102) was lost while measuring, at step 57: its connection closed");
}

TEST_F(Ledger, NamesThePhase) {
  const auto phase_of = [&](const cluster::RankState& state) {
    const liveness::LostRank lost{.rank = 0, .name = "rank 0", .last = state, .how = "gone"};
    return liveness::to_text(std::span(&lost, 1));
  };
  EXPECT_EQ(phase_of({}), "rank 0 was lost while joining the other ranks: gone");
  cluster::RankState state = training(-1);
  EXPECT_EQ(phase_of(state), "rank 0 was lost in the first step: gone");
  EXPECT_EQ(phase_of(training(0)), "rank 0 was lost in the first step: gone");
  EXPECT_EQ(phase_of(training(9)), "rank 0 was lost while warming up, at step 10: gone");
  EXPECT_EQ(phase_of(training(10)), "rank 0 was lost while measuring, at step 1: gone");
  state.phase = cluster::RankPhase::preparing;
  EXPECT_EQ(phase_of(state), "rank 0 was lost while preparing: gone");
  state.phase = cluster::RankPhase::gathering;
  EXPECT_EQ(phase_of(state), "rank 0 was lost at the end: gone");
}

TEST_F(Ledger, KnowsThatOthersCameToWhereAllMeet) {
  const auto lost_where_rank_0_is = [&](cluster::RankPhase phase) {
    liveness::RankStates accounts(names(2), 0, {}, now_);
    accounts.arrived(1, "rank 1 (host a, pid 101)", now_);
    cluster::RankState self = training(-1);
    self.phase = phase;
    accounts.heard(0, self, now_);
    accounts.closed(1);
    return accounts.lost(now_).front().last.phase;
  };
  EXPECT_EQ(lost_where_rank_0_is(cluster::RankPhase::joining), cluster::RankPhase::joining);
  EXPECT_EQ(lost_where_rank_0_is(cluster::RankPhase::preparing), cluster::RankPhase::preparing);
  EXPECT_EQ(lost_where_rank_0_is(cluster::RankPhase::training), cluster::RankPhase::training);
  EXPECT_EQ(lost_where_rank_0_is(cluster::RankPhase::gathering), cluster::RankPhase::training);
  EXPECT_EQ(lost_where_rank_0_is(cluster::RankPhase::leaving), cluster::RankPhase::gathering);
}

TEST_F(Ledger, SilenceIsALossAfterItsDeadline) {
  EXPECT_EQ(pass(29s, {1}), "");
  EXPECT_EQ(pass(2s, {1}),
            "rank 2 (host b, pid 102) was lost while joining the other ranks: silent for 30.1 s: "
            "it is stopped, or cannot be reached");
}

TEST_F(Ledger, AHostThatIsCutOffIsNamedWithAllItsRanks) {
  EXPECT_EQ(pass(2s, {1, 2}), "");
  const std::string text = pass(40s, {});
  EXPECT_NE(text.find("rank 1 (host a"), std::string::npos) << text;
  EXPECT_NE(text.find("; rank 2 (host b"), std::string::npos) << text;
}

TEST_F(Ledger, TheEndHasADeadlineOfItsOwn) {
  state_.phase = cluster::RankPhase::gathering;
  EXPECT_EQ(pass(1s, {1, 2}), "");
  EXPECT_EQ(pass(9s, {1}), "");
  EXPECT_NE(pass(2s, {1}).find("rank 2 (host b, pid 102) was lost at the end"), std::string::npos);
}

TEST_F(Ledger, ARankThatSaidGoodbyeIsNotLost) {
  accounts_.left(2);
  accounts_.closed(2);
  EXPECT_EQ(pass(100s, {1}), "");
}

TEST_F(Ledger, ARankThatNeverCameIsNamedAfterTheRendezvous) {
  liveness::RankStates accounts(names(2), 0, {.rendezvous = 60s, .silence = 30s, .goodbye = 10s},
                                now_);
  const Time begin = now_;
  while (accounts.lost(now_).empty() && now_ < begin + 70s) now_ += 100ms;
  EXPECT_EQ(now_, begin + 60s + 100ms);
  EXPECT_EQ(liveness::to_text(accounts.lost(now_)),
            "rank 1 was lost while joining the other ranks: it did not join within 60 s; check "
            "that it was started, and that it is not stopped");
}

TEST_F(Ledger, SaysWhomItWaitsForOnceThatTakesLong) {
  liveness::RankStates accounts(names(20), 0, {}, now_);
  EXPECT_EQ(accounts.waiting_text(now_ + 1s), "");
  EXPECT_EQ(accounts.waiting_text(now_ + 2s),
            "waiting for ranks 1, 2, 3, 4, 5, 6, 7, 8, ... to join (1 of 20 are here)");
  for (std::int32_t rank = 1; rank < 19; ++rank) accounts.arrived(rank, "", now_);
  EXPECT_EQ(accounts.waiting_text(now_ + 2s), "waiting for rank 19 to join (19 of 20 are here)");
  accounts.arrived(19, "", now_);
  EXPECT_EQ(accounts.waiting_text(now_ + 60s), "");
}

TEST_F(Ledger, SilenceWhileThisProcessStoodStillIsForgiven) {
  EXPECT_EQ(pass(1s, {1, 2}), "");
  now_ += 300s;
  EXPECT_TRUE(accounts_.lost(now_).empty());
  EXPECT_EQ(pass(20s, {1, 2}), "");
}

TEST_F(Ledger, NoRankIsLateWhileThisProcessIsStopped) {
  liveness::RankStates accounts(names(2), 0, {.rendezvous = 60s, .silence = 30s, .goodbye = 10s},
                                now_);
  EXPECT_TRUE(accounts.lost(now_ += 300s).empty());
  const Time awake = now_;
  while (accounts.lost(now_).empty() && now_ < awake + 70s) now_ += 100ms;
  EXPECT_EQ(now_, awake + 60s + 100ms);
}

TEST_F(Ledger, AStuckMeetingIsBlamedOnWhomDidNotCome) {
  accounts_.heard(0, training(20, 31), now_);
  accounts_.heard(1, training(20, 31), now_);
  accounts_.heard(2, training(20, 30), now_);
  accounts_.overdue(1, training(20, 31));
  EXPECT_EQ(liveness::to_text(accounts_.lost(now_)),
            "rank 2 (host b, pid 102) was lost while measuring, at step 11: it is alive, but did "
            "not reach the point where the other ranks waited for it until their deadline");
}

TEST_F(Ledger, AStuckMeetingIsBlamedOnTheFirstSilentRank) {
  state_ = training(20, 31);
  EXPECT_EQ(pass(1s, {0, 1, 2}), "");
  EXPECT_EQ(pass(4s, {0, 1}), "");
  accounts_.overdue(1, state_);
  const std::string text = liveness::to_text(accounts_.lost(now_));
  EXPECT_EQ(text.find("rank 2"), 0U) << text;
  EXPECT_NE(text.find("silent for 4.0 s"), std::string::npos) << text;
}

TEST_F(Ledger, NoRankIsBlamedIfAllCame) {
  for (const std::int32_t rank : {0, 1, 2}) accounts_.heard(rank, training(20, 31), now_);
  accounts_.overdue(1, training(20, 31));
  const std::string text = liveness::to_text(accounts_.lost(now_));
  EXPECT_EQ(text.find("no rank was lost, but all ranks stopped while measuring, at step 11"), 0U)
      << text;
}

}  // namespace
}  // namespace penstock
