// SPDX-License-Identifier: Apache-2.0
// The accounting of credits, and the comparison of clocks.
#include "feeders/remote/credit/credit_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "dataflow/random.h"
#include "feeders/remote/receive/clock_bounds.h"
#include "feeders/remote/wire/framed_header.h"

namespace penstock {
namespace {

using Producers = std::vector<remote::CreditScheduler::Producer>;

TEST(CreditScheduler, EachProducerGetsItsShareAndNoMore) {
  remote::CreditScheduler book(3, 100);
  EXPECT_TRUE(book.grant().empty());
  book.add(1);
  book.add(2);
  EXPECT_EQ(book.grant(), (Producers{1, 2}));
  EXPECT_EQ(book.granted(1), 3U);
  EXPECT_EQ(book.granted(2), 3U);
  EXPECT_TRUE(book.grant().empty());
  EXPECT_EQ(book.under_way(), 6);
}

TEST(CreditScheduler, AReceivedBatchHoldsItsRoomUntilItIsReturned) {
  remote::CreditScheduler book(2, 100);
  book.add(1);
  book.grant();
  EXPECT_TRUE(book.take(1));
  EXPECT_TRUE(book.take(1));
  EXPECT_FALSE(book.take(1));  // beyond its credits
  EXPECT_TRUE(book.grant().empty());
  book.give_back(1);
  EXPECT_EQ(book.grant(), (Producers{1}));
  EXPECT_EQ(book.granted(1), 3U);
  EXPECT_TRUE(book.take(1));
  EXPECT_FALSE(book.take(1));
}

TEST(CreditScheduler, TogetherTheyStayWithinTheRoom) {
  remote::CreditScheduler book(4, 6);
  for (remote::CreditScheduler::Producer i = 1; i <= 3; ++i) book.add(i);
  book.grant();
  EXPECT_EQ(book.under_way(), 6);
  for (remote::CreditScheduler::Producer i = 1; i <= 3; ++i) EXPECT_EQ(book.granted(i), 2U);
}

TEST(CreditScheduler, MoreProducersThanRoomTakeTurns) {
  constexpr remote::CreditScheduler::Producer kProducers = 5;
  remote::CreditScheduler book(4, 2);
  for (remote::CreditScheduler::Producer i = 0; i < kProducers; ++i) book.add(i);
  std::map<remote::CreditScheduler::Producer, int> batches;
  for (int i = 0; i < 100; ++i) {
    book.grant();
    EXPECT_EQ(book.under_way(), 2);
    for (remote::CreditScheduler::Producer step = 0; step < kProducers; ++step) {
      const remote::CreditScheduler::Producer producer =
          (static_cast<std::uint64_t>(i) + step) % kProducers;
      if (!book.take(producer)) continue;
      ++batches[producer];
      book.give_back(producer);
      break;
    }
  }
  EXPECT_EQ(batches.size(), kProducers);
  for (const auto& [producer, count] : batches) EXPECT_GE(count, 15) << producer;
}

TEST(CreditScheduler, AProducerThatSendsNothingKeepsItsShareOnly) {
  remote::CreditScheduler book(8, 8);
  book.add(1);
  book.add(2);
  book.grant();
  EXPECT_EQ(book.granted(1), 4U);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(book.take(2));
    book.give_back(2);
    EXPECT_EQ(book.grant(), (Producers{2}));
  }
  EXPECT_EQ(book.granted(1), 4U);
  EXPECT_EQ(book.granted(2), 54U);
}

TEST(CreditScheduler, AProducerThatGoesLeavesItsRoomToOthers) {
  remote::CreditScheduler book(8, 4);
  book.add(1);
  book.add(2);
  book.grant();
  EXPECT_TRUE(book.take(1));
  book.remove(1);
  book.remove(7);  // no such producer
  EXPECT_EQ(book.under_way(), 2);
  EXPECT_EQ(book.grant(), (Producers{2}));
  EXPECT_EQ(book.granted(2), 4U);
}

constexpr std::int64_t kNow = 1'700'000'000'000'000'000;

TEST(CreditScheduler, UnusedCreditsOfARetiredProducerAreFree) {
  remote::CreditScheduler book(2, 2);
  book.add(1);
  book.grant();
  book.add(2);
  EXPECT_TRUE(book.grant().empty());
  ASSERT_TRUE(book.take(1));
  book.retire(1);
  EXPECT_EQ(book.grant(), Producers{2});
  EXPECT_EQ(book.granted(2), 1U);
  EXPECT_FALSE(book.take(1));
  book.give_back(1);
  EXPECT_EQ(book.grant(), Producers{2});
  EXPECT_EQ(book.granted(2), 2U);
  EXPECT_EQ(book.under_way(), 2);
}

TEST(CreditScheduler, UnusedCreditsOfASilentProducerLapseButForOne) {
  remote::CreditScheduler book(8, 6);
  book.add(1);
  book.grant();
  EXPECT_EQ(book.granted(1), 6U);
  EXPECT_FALSE(book.is_short());  // there is no other producer
  book.add(2);
  EXPECT_TRUE(book.grant().empty());
  EXPECT_TRUE(book.is_short());
  ASSERT_TRUE(book.take(1));
  EXPECT_EQ(book.lapse(1), 5);
  EXPECT_EQ(book.lapse(1), 0);
  EXPECT_EQ(book.lapse(2), 0);
  EXPECT_EQ(book.granted(1), 2U);
  EXPECT_EQ(book.under_way(), 1);
  EXPECT_EQ(book.grant(), Producers{2});  // none for the silent producer
  EXPECT_EQ(book.granted(2), 5U);
  EXPECT_FALSE(book.is_short());
}

TEST(CreditScheduler, AProducerThatComesBackTakesPartAgain) {
  remote::CreditScheduler book(2, 2);
  book.add(1);
  book.grant();
  book.add(2);
  book.lapse(1);
  EXPECT_EQ(book.grant(), Producers{2});
  ASSERT_TRUE(book.take(1));  // with its remaining credit, for which there was no room
  EXPECT_EQ(book.under_way(), 3);
  EXPECT_TRUE(book.grant().empty());
  ASSERT_TRUE(book.take(2));
  book.give_back(2);
  EXPECT_TRUE(book.grant().empty());
  book.give_back(1);
  EXPECT_EQ(book.grant(), Producers{1});  // which has the fewest batches in flight
  EXPECT_EQ(book.granted(1), 2U);
}

TEST(CreditScheduler, ABatchInFlightWhenItsCreditLapsedIsTaken) {
  remote::CreditScheduler book(3, 3);
  book.add(1);
  book.grant();
  book.add(2);
  EXPECT_EQ(book.lapse(1), 3);
  EXPECT_EQ(book.grant(), Producers{2});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(book.take(1)) << i;
  EXPECT_FALSE(book.take(1));  // it never had this many
  EXPECT_EQ(book.granted(1), 3U);
  EXPECT_EQ(book.under_way(), 6);
  for (int i = 0; i < 3; ++i) book.give_back(1);
  EXPECT_EQ(book.under_way(), 3);
}

TEST(CreditScheduler, AProducerWhoseCreditsLapsedMayRetireOrGo) {
  for (const bool retires : {true, false}) {
    remote::CreditScheduler book(2, 2);
    book.add(1);
    book.grant();
    book.add(2);
    book.lapse(1);
    book.grant();
    retires ? book.retire(1) : book.remove(1);
    EXPECT_EQ(book.under_way(), 2);
    if (retires) {
      EXPECT_FALSE(book.take(1));
    }
    book.remove(2);
    EXPECT_EQ(book.under_way(), 0);
  }
}

TEST(CreditScheduler, NoProducerExceedsItsOwnCreditsAfterLapses) {
  constexpr std::int64_t kCredit = 3, kTogether = 5;
  constexpr remote::CreditScheduler::Producer kProducers = 4;
  remote::CreditScheduler book(kCredit, kTogether);
  Random random(1, 0, 0);
  std::map<remote::CreditScheduler::Producer, std::int64_t> held, sent, most;
  for (remote::CreditScheduler::Producer i = 0; i < kProducers; ++i) book.add(i);
  for (int step = 0; step < 20'000; ++step) {
    const remote::CreditScheduler::Producer who = random.bits() % kProducers;
    switch (random.bits() % 4) {
      case 0:
        book.grant();
        break;
      case 1:
        book.lapse(who);
        break;
      case 2: {
        const bool had = sent[who] < most[who];
        ASSERT_EQ(book.take(who), had) << "each credit that ever was counts";
        sent[who] += had ? 1 : 0;
        held[who] += had ? 1 : 0;
        break;
      }
      default:
        if (held[who] == 0) break;
        book.give_back(who);
        --held[who];
    }
    most[who] = std::max(most[who], static_cast<std::int64_t>(book.granted(who)));
    for (remote::CreditScheduler::Producer i = 0; i < kProducers; ++i) {
      most[i] = std::max(most[i], static_cast<std::int64_t>(book.granted(i)));
      ASSERT_LE(held[i] + static_cast<std::int64_t>(book.granted(i)) - sent[i], kCredit);
      ASSERT_LE(most[i] - sent[i], kCredit);
    }
  }
}

TEST(ClockBounds, OneDirectionAloneSaysNothing) {
  remote::ClockBounds bounds;
  EXPECT_FALSE(bounds.estimate());
  bounds.before(kNow, kNow);
  EXPECT_FALSE(bounds.estimate());
}

TEST(ClockBounds, ARoundTripIsKnownToHalfOfWhatItTook) {
  // The peer's clock is 5,000 ns ahead; 100 ns there, 300 ns at the peer, 100 ns back.
  remote::ClockBounds bounds;
  bounds.after(kNow + 5100, kNow);
  bounds.before(kNow + 5400, kNow + 500);
  ASSERT_TRUE(bounds.estimate());
  EXPECT_EQ(bounds.estimate()->offset_ns, 5000);
  EXPECT_EQ(bounds.estimate()->bound_ns, 100);
}

TEST(ClockBounds, TheTightestHold) {
  remote::ClockBounds bounds;
  bounds.after(kNow + 5100, kNow);
  bounds.before(kNow + 5400, kNow + 500);
  bounds.after(kNow + 9000, kNow + 1000);    // looser
  bounds.before(kNow + 5400, kNow + 90000);  // looser
  bounds.after(kNow + 7020, kNow + 2000);    // tighter
  EXPECT_EQ(bounds.estimate()->offset_ns, 4960);
  EXPECT_EQ(bounds.estimate()->bound_ns, 60);
}

TEST(ClockBounds, AClockThatWasSetStartsAfresh) {
  remote::ClockBounds bounds;
  bounds.after(kNow + 5100, kNow);
  bounds.before(kNow + 5400, kNow + 500);
  bounds.before(kNow + 900'000, kNow + 1000);
  EXPECT_FALSE(bounds.estimate());
  bounds.after(kNow + 900'100, kNow + 1000);
  EXPECT_EQ(bounds.estimate()->offset_ns, 899'050);
}

TEST(ClockBounds, WhatIsNoTimeSaysNothing) {
  remote::ClockBounds bounds;
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t time : {std::int64_t{0}, std::int64_t{-1}, kLeast, kMost}) {
    bounds.before(time, kNow);
    bounds.after(time, kNow);
    bounds.before(kNow, time);
    bounds.after(kNow, time);
  }
  EXPECT_FALSE(bounds.estimate());
  EXPECT_GT(remote::wall_clock_ns(), kNow - 100'000'000'000'000'000);
}

}  // namespace
}  // namespace penstock
