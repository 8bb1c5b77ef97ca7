// SPDX-License-Identifier: Apache-2.0
#include "trainer/liveness/rank_ledger.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Rank 0's ledger of three, a tenth of a second after the other.
class Ledger : public ::testing::Test {
 protected:
  Ledger() {
    ledger_.arrived(1, {"a", 101}, now_);
    ledger_.arrived(2, {"b", 102}, now_);
  }
  static RankState training(std::int64_t step, std::int64_t meetings = 0) {
    return {.phase = RankPhase::training,
            .waiting = false,
            .step = step,
            .warm_up = 10,
            .meetings = meetings};
  }
  /// Passes time during which these ranks are heard of.
  std::string pass(Nanoseconds time, const std::vector<std::int32_t>& heard) {
    std::string text;
    for (const Time end = now_ + time; now_ < end && text.empty();) {
      now_ += 100ms;
      for (const std::int32_t rank : heard) ledger_.heard(rank, state_, now_);
      text = to_text(ledger_.lost(now_));
    }
    return text;
  }

  Time now_{100s};
  RankState state_ = training(66);
  RankLedger ledger_{3, 0, {.rendezvous = 60s, .silence = 30s, .goodbye = 10s}, now_};
};

TEST_F(Ledger, NobodyIsLostAsLongAsAllAreHeard) { EXPECT_EQ(pass(100s, {1, 2}), ""); }

TEST_F(Ledger, AClosedConnectionIsNamedWithPlacePhaseAndStep) {
  ledger_.heard(2, state_, now_);
  ledger_.closed(2);
  EXPECT_EQ(pass(1s, {1}),
            "rank 2 (host b, pid 102) was lost while measuring, at step 57: its connection closed");
}

TEST_F(Ledger, NamesThePhase) {
  const auto phase_of = [&](const RankState& state) {
    LostRank lost;
    lost.last = state;
    lost.how = "gone";
    return to_text(std::span(&lost, 1));
  };
  EXPECT_EQ(phase_of({}), "rank 0 was lost while joining the other ranks: gone");
  RankState state = training(-1);
  EXPECT_EQ(phase_of(state), "rank 0 was lost in the first step: gone");
  EXPECT_EQ(phase_of(training(0)), "rank 0 was lost in the first step: gone");
  EXPECT_EQ(phase_of(training(9)), "rank 0 was lost while warming up, at step 10: gone");
  EXPECT_EQ(phase_of(training(10)), "rank 0 was lost while measuring, at step 1: gone");
  state.phase = RankPhase::preparing;
  EXPECT_EQ(phase_of(state), "rank 0 was lost while preparing: gone");
  state.phase = RankPhase::gathering;
  EXPECT_EQ(phase_of(state), "rank 0 was lost at the end: gone");
}

TEST_F(Ledger, KnowsThatOthersCameToWhereAllMeet) {
  const auto lost_where_rank_0_is = [&](RankPhase phase) {
    RankLedger ledger(2, 0, {}, now_);
    ledger.arrived(1, {"a", 101}, now_);
    RankState self = training(-1);
    self.phase = phase;
    ledger.heard(0, self, now_);
    ledger.closed(1);
    return ledger.lost(now_).front().last.phase;
  };
  EXPECT_EQ(lost_where_rank_0_is(RankPhase::joining), RankPhase::joining);
  EXPECT_EQ(lost_where_rank_0_is(RankPhase::preparing), RankPhase::preparing);
  EXPECT_EQ(lost_where_rank_0_is(RankPhase::training), RankPhase::training);
  EXPECT_EQ(lost_where_rank_0_is(RankPhase::gathering), RankPhase::training);
  EXPECT_EQ(lost_where_rank_0_is(RankPhase::leaving), RankPhase::gathering);
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
  state_.phase = RankPhase::gathering;
  EXPECT_EQ(pass(1s, {1, 2}), "");
  EXPECT_EQ(pass(9s, {1}), "");
  EXPECT_NE(pass(2s, {1}).find("rank 2 (host b, pid 102) was lost at the end"), std::string::npos);
}

TEST_F(Ledger, WhoeverSaidGoodbyeIsNotLost) {
  ledger_.left(2);
  ledger_.closed(2);
  EXPECT_EQ(pass(100s, {1}), "");
}

TEST_F(Ledger, ARankThatNeverCameIsNamedAfterTheRendezvous) {
  RankLedger ledger(2, 0, {.rendezvous = 60s, .silence = 30s, .goodbye = 10s}, now_);
  const Time begin = now_;
  while (ledger.lost(now_).empty() && now_ < begin + 70s) now_ += 100ms;
  EXPECT_EQ(now_, begin + 60s + 100ms);
  EXPECT_EQ(to_text(ledger.lost(now_)),
            "rank 1 was lost while joining the other ranks: it did not come within 60 s; see that "
            "it was started, and that it is not stopped");
}

TEST_F(Ledger, SaysWhomItWaitsForOnceThatTakesLong) {
  RankLedger ledger(20, 0, {}, now_);
  EXPECT_EQ(ledger.waiting_text(now_ + 1s), "");
  EXPECT_EQ(ledger.waiting_text(now_ + 2s),
            "waiting for ranks 1, 2, 3, 4, 5, 6, 7, 8, ... to join (1 of 20 are here)");
  for (std::int32_t rank = 1; rank < 19; ++rank) ledger.arrived(rank, {"a", 100}, now_);
  EXPECT_EQ(ledger.waiting_text(now_ + 2s), "waiting for rank 19 to join (19 of 20 are here)");
  ledger.arrived(19, {"a", 100}, now_);
  EXPECT_EQ(ledger.waiting_text(now_ + 60s), "");
}

TEST_F(Ledger, SilenceWhileThisProcessStoodStillIsForgiven) {
  EXPECT_EQ(pass(1s, {1, 2}), "");
  now_ += 300s;
  EXPECT_TRUE(ledger_.lost(now_).empty());
  EXPECT_EQ(pass(20s, {1, 2}), "");
}

TEST_F(Ledger, WhileThisProcessStoodStillNobodyIsLate) {
  RankLedger ledger(2, 0, {.rendezvous = 60s, .silence = 30s, .goodbye = 10s}, now_);
  EXPECT_TRUE(ledger.lost(now_ += 300s).empty());
  const Time awake = now_;
  while (ledger.lost(now_).empty() && now_ < awake + 70s) now_ += 100ms;
  EXPECT_EQ(now_, awake + 60s + 100ms);
}

TEST_F(Ledger, AStuckMeetingIsBlamedOnWhomDidNotCome) {
  ledger_.heard(0, training(20, 31), now_);
  ledger_.heard(1, training(20, 31), now_);
  ledger_.heard(2, training(20, 30), now_);
  ledger_.overdue(1, training(20, 31));
  EXPECT_EQ(to_text(ledger_.lost(now_)),
            "rank 2 (host b, pid 102) was lost while measuring, at step 11: it lives, and did not "
            "come to where the others waited for it until their deadline");
}

TEST_F(Ledger, AStuckMeetingIsBlamedOnWhoeverIsSilentFirst) {
  state_ = training(20, 31);
  EXPECT_EQ(pass(1s, {0, 1, 2}), "");
  EXPECT_EQ(pass(4s, {0, 1}), "");
  ledger_.overdue(1, state_);
  const std::string text = to_text(ledger_.lost(now_));
  EXPECT_EQ(text.find("rank 2"), 0U) << text;
  EXPECT_NE(text.find("silent for 4.0 s"), std::string::npos) << text;
}

TEST_F(Ledger, WhereAllCameNobodyIsBlamed) {
  for (const std::int32_t rank : {0, 1, 2}) ledger_.heard(rank, training(20, 31), now_);
  ledger_.overdue(1, training(20, 31));
  const std::string text = to_text(ledger_.lost(now_));
  EXPECT_EQ(text.find("no rank was lost, and none goes on while measuring, at step 11"), 0U)
      << text;
}

}  // namespace
}  // namespace penstock
