// SPDX-License-Identifier: Apache-2.0
// The accounts of producers: closed forms, and sums that add up whatever comes in whichever order.
#include "feeders/producer_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Flow = ProducerLedger::Flow;

/// Batch `sequence` of JPEG files, of which batch k of a producer has k % 3 + 1.
constexpr std::uint32_t images_of(std::uint64_t sequence) {
  return static_cast<std::uint32_t>(sequence % 3 + 1);
}
constexpr std::uint64_t images_before(std::uint64_t sequence) {
  return sequence / 3 * 6 + (sequence % 3 == 0 ? 0 : sequence % 3 == 1 ? 1 : 3);
}
FramedHeader batch(std::uint64_t sequence, std::uint64_t producer = 1) {
  return {.kind = FramedKind::batch,
          .encoding = FramedEncoding::jpeg,
          .producer = producer,
          .sequence = sequence,
          .images_before = images_before(sequence),
          .images = images_of(sequence)};
}
FramedHeader end(std::uint64_t batches, std::uint64_t producer = 1) {
  return {.kind = FramedKind::end,
          .producer = producer,
          .sequence = batches,
          .images_before = images_before(batches)};
}

bool adds_up(const LedgerTotals& t) {
  return t.images_sent == t.images_received + t.images_rejected + t.images_missing;
}
bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
std::string refusal(ProducerLedger& ledger, const FramedHeader& header) {
  const LedgerTotals before = ledger.totals();
  const std::string text = thrown_by<DataError>(
      [&] { header.kind == FramedKind::end ? ledger.ended(header) : ledger.received(header); });
  LedgerTotals after = ledger.totals();
  after.batches_duplicate = before.batches_duplicate;
  EXPECT_EQ(after, before) << "what was refused is in the accounts";
  return text;
}

TEST(ProducerLedger, WhatComesInOrderIsReceived) {
  ProducerLedger ledger;
  for (std::uint64_t i = 0; i < 10; ++i) ledger.received(batch(i));
  EXPECT_EQ(ledger.flow(1), Flow::coming);
  ledger.ended(end(10));
  ledger.ended(end(10));  // it may say so again
  EXPECT_EQ(ledger.flow(1), Flow::complete);
  EXPECT_EQ(ledger.flow(2), Flow::coming);
  EXPECT_EQ(ledger.totals(), (LedgerTotals{.producers_seen = 1,
                                           .producers_ended = 1,
                                           .batches_received = 10,
                                           .images_sent = images_before(10),
                                           .images_received = images_before(10)}));
}

TEST(ProducerLedger, WhatIsSkippedIsMissingUntilItComes) {
  ProducerLedger ledger;
  ledger.received(batch(2));
  EXPECT_EQ(ledger.totals().batches_missing, 2U);
  EXPECT_EQ(ledger.totals().images_missing, 3U);
  ledger.received(batch(7));
  EXPECT_EQ(ledger.totals().batches_missing, 6U);
  EXPECT_EQ(ledger.totals().images_missing, 3 + images_before(7) - images_before(3));
  ledger.ended(end(9));
  EXPECT_EQ(ledger.totals().batches_missing, 7U);
  EXPECT_EQ(ledger.flow(1), Flow::stragglers);
  for (const std::uint64_t late : {5, 3, 8, 0, 6, 1, 4}) {
    ledger.received(batch(late));
    EXPECT_TRUE(adds_up(ledger.totals()));
  }
  EXPECT_EQ(ledger.flow(1), Flow::complete);
  EXPECT_EQ(ledger.totals().images_missing, 0U);
  EXPECT_EQ(ledger.totals().images_received, images_before(9));
}

TEST(ProducerLedger, ANumberThatComesTwiceIsRefusedByName) {
  ProducerLedger ledger;
  ledger.received(batch(0));
  ledger.rejected(batch(1));
  ledger.received(batch(4));
  EXPECT_EQ(
      refusal(ledger, batch(0)),
      "batch 0 of producer 0000000000000001 came a second time, or long after those behind it");
  EXPECT_TRUE(contains(refusal(ledger, batch(1)), "a second time"));
  EXPECT_TRUE(contains(refusal(ledger, batch(4)), "a second time"));
  ledger.rejected(batch(4));  // which says nothing new
  EXPECT_EQ(ledger.totals().batches_duplicate, 3U);
  EXPECT_EQ(ledger.totals().batches_rejected, 1U);
  EXPECT_EQ(ledger.totals().images_rejected, images_of(1));
  EXPECT_EQ(ledger.totals().batches_missing, 2U);
  EXPECT_TRUE(adds_up(ledger.totals()));
}

TEST(ProducerLedger, ContradictionsAreRefusedAndChangeNothing) {
  ProducerLedger ledger;
  ledger.received(batch(0));
  ledger.received(batch(5));
  const auto with = [&](std::uint64_t sequence, std::uint64_t before, std::uint32_t images) {
    FramedHeader header = batch(sequence);
    header.images_before = before;
    header.images = images;
    return contains(refusal(ledger, header), "contradicts");
  };
  EXPECT_TRUE(with(6, images_before(6) + 1, 1));  // more, and no batch for them
  EXPECT_TRUE(with(6, images_before(6) - 1, 1));
  EXPECT_TRUE(with(8, images_before(6) + 1, 1));  // two batches with one image
  EXPECT_TRUE(with(6, images_before(6), 0));
  EXPECT_TRUE(with(1, 0, 2));  // behind the one image of batch 0
  EXPECT_TRUE(with(1, 2, 2));  // one image between 0 and 1
  EXPECT_TRUE(with(2, 3, 7));  // leaves nothing for 3 and 4
  EXPECT_TRUE(with(2, 3, UINT32_MAX));
  EXPECT_TRUE(with(2, UINT64_MAX, 1));
  EXPECT_TRUE(with(UINT64_MAX, UINT64_MAX, 1));
  EXPECT_TRUE(with(std::uint64_t{1} << 48, std::uint64_t{1} << 50, 1));
  EXPECT_TRUE(contains(refusal(ledger, end(3)), "the end of producer"));
  EXPECT_TRUE(contains(refusal(ledger, end(UINT64_MAX)), "contradicts"));
  ledger.ended(end(6));
  EXPECT_TRUE(contains(refusal(ledger, end(7)), "contradicts"));
  EXPECT_TRUE(contains(refusal(ledger, batch(6)), "its end among them"));
  ledger.rejected(batch(6));
  ledger.received(batch(4));
  EXPECT_EQ(ledger.totals().images_missing, images_before(4) - images_before(1));
  EXPECT_TRUE(adds_up(ledger.totals()));
}

TEST(ProducerLedger, AShapeIsKept) {
  ProducerLedger ledger;
  FramedHeader pixels = {.encoding = FramedEncoding::pixels,
                         .producer = 9,
                         .images = 4,
                         .height = 2,
                         .width = 3,
                         .channels = 3};
  ledger.hello(pixels, {.name = "loader", .host = "host7", .pid = 4711, .boot = {}, .pool = {}});
  EXPECT_EQ(ledger.name_of(9), "loader on host7, pid 4711");
  EXPECT_EQ(ledger.hello_of(9)->pid, 4711);
  EXPECT_FALSE(ledger.hello_of(8));
  ledger.received(pixels);
  pixels.width = 4;
  pixels.sequence = 1;
  pixels.images_before = 4;
  EXPECT_EQ(refusal(ledger, pixels),
            "loader on host7, pid 4711 sends pixels [4,2,4,3] in message 1, after pixels "
            "[4,2,3,3]; expected one shape as long as it runs");
  FramedHeader jpeg = batch(1, 9);
  EXPECT_TRUE(contains(refusal(ledger, jpeg), "sends JPEG files in message 1"));
}

TEST(ProducerLedger, ThoseOfWhomImagesAreMissingAreNamed) {
  ProducerLedger ledger;
  EXPECT_TRUE(ledger.absences(2).empty());
  for (std::uint64_t producer = 1; producer <= 4; ++producer) {
    ledger.received(batch(producer - 1, producer));  // all before it are missing
  }
  const auto absences = ledger.absences(2);
  ASSERT_EQ(absences.size(), 2U);
  EXPECT_EQ(absences[0].name, "producer 0000000000000004");
  EXPECT_EQ(absences[0].images_missing, images_before(3));
  EXPECT_EQ(absences[0].images_sent, images_before(4));
  EXPECT_EQ(absences[1].images_missing, images_before(2));
  ledger.received(batch(0, 2));
  EXPECT_EQ(ledger.absences(9).size(), 2U);
}

TEST(ProducerLedger, AProducerThatStartsAnewIsAnother) {
  ProducerLedger ledger;
  ledger.received(batch(0, 1));
  ledger.received(batch(1, 1));
  for (std::uint64_t i = 0; i < 4; ++i) ledger.received(batch(i, 2));
  ledger.ended(end(4, 2));
  EXPECT_EQ(ledger.totals().producers_seen, 2U);
  EXPECT_EQ(ledger.flow(1), Flow::complete);
  EXPECT_EQ(ledger.totals().images_sent, images_before(2) + images_before(4));
}

TEST(ProducerLedger, MemoryOfGapsIsBounded) {
  ProducerLedger ledger({.producers = 2, .gaps = 4});
  for (std::uint64_t i = 0; i < 20; ++i) ledger.received(batch(2 * i + 1));
  EXPECT_EQ(ledger.totals().batches_missing, 20U);
  for (std::uint64_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(contains(refusal(ledger, batch(2 * i)), "long after")) << i;
  }
  for (std::uint64_t i = 16; i < 20; ++i) ledger.received(batch(2 * i));
  EXPECT_EQ(ledger.totals().batches_missing, 16U);
  EXPECT_TRUE(adds_up(ledger.totals()));
  // One run of missing numbers becomes two.
  ledger.received(batch(100));
  for (std::uint64_t i = 60; i < 100; i += 5) ledger.received(batch(i));
  EXPECT_EQ(ledger.totals().batches_missing, 16U + 60 - 8);
  ledger.ended(end(101));
  EXPECT_TRUE(adds_up(ledger.totals()));
}

TEST(ProducerLedger, TheNumberOfProducersIsBounded) {
  ProducerLedger ledger({.producers = 3, .gaps = 4});
  for (std::uint64_t p = 1; p <= 3; ++p) ledger.received(batch(0, p));
  EXPECT_TRUE(contains(refusal(ledger, batch(0, 4)), "one producer too many: 3 are known"));
  ledger.rejected(batch(0, 4));
  EXPECT_EQ(ledger.totals().producers_seen, 3U);
  ledger.ended(end(1, 2));
  ledger.received(batch(0, 4));  // takes the place of the one that has ended
  EXPECT_EQ(ledger.totals().producers_seen, 4U);
  EXPECT_EQ(ledger.flow(1), Flow::complete);
  EXPECT_TRUE(contains(refusal(ledger, batch(0, 5)), "too many"));
  EXPECT_TRUE(adds_up(ledger.totals()));
}

TEST(ProducerLedger, OneThatHasLeftGivesWay) {
  ProducerLedger ledger({.producers = 2, .gaps = 4});
  const auto hello = [&](std::uint64_t producer) {
    FramedHeader header = batch(0, producer);
    header.kind = FramedKind::hello;
    ledger.hello(header, {});
  };
  hello(1);
  hello(2);
  EXPECT_THROW(hello(3), DataError);
  ledger.left(1);
  ledger.left(9);  // nobody
  hello(1);        // back again
  EXPECT_THROW(hello(3), DataError);
  ledger.left(2);
  hello(3);
  EXPECT_EQ(ledger.totals().producers_seen, 3U);
  EXPECT_THROW(hello(2), DataError);
}

TEST(ProducerLedger, KilledProducersGiveWayToNewOnes) {
  // Each of them is killed, so that none ends: only one that stays is heard all the time.
  constexpr std::uint64_t kKilled = 40, kStays = 1000;
  ProducerLedger ledger({.producers = 4, .gaps = 4, .silence = 6});
  for (std::uint64_t p = 1; p <= kKilled; ++p) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      ledger.received(batch(i, p));
      ledger.received(batch(3 * (p - 1) + i, kStays));
    }
  }
  const LedgerTotals totals = ledger.totals();
  EXPECT_EQ(totals.producers_seen, kKilled + 1);
  EXPECT_EQ(totals.batches_received, 6 * kKilled);
  EXPECT_EQ(totals.batches_missing, 0U) << "the one that stays was forgotten";
  EXPECT_EQ(totals.images_sent, kKilled * images_before(3) + images_before(3 * kKilled));
  EXPECT_TRUE(adds_up(totals));
}

TEST(ProducerLedger, AProducerThatKeepsDyingIsLetInAgain) {
  ProducerLedger ledger({.producers = 4, .gaps = 4, .silence = 4});
  for (std::uint64_t p = 1; p <= 40; ++p) ledger.received(batch(0, p));
  EXPECT_EQ(ledger.totals().producers_seen, 40U);
  EXPECT_TRUE(adds_up(ledger.totals()));
}

TEST(ProducerLedger, WhoeverIsNotSilentIsNotForgotten) {
  ProducerLedger ledger({.producers = 4, .gaps = 4, .silence = 20});
  for (std::uint64_t i = 0; i < 20; ++i) {
    for (std::uint64_t p = 1; p <= 4; ++p) ledger.received(batch(i, p));
    for (std::uint64_t p = 5; p < 15; ++p) {
      EXPECT_TRUE(contains(refusal(ledger, batch(0, p)), "one producer too many")) << p;
    }
  }
  EXPECT_EQ(ledger.totals().producers_seen, 4U);
  EXPECT_EQ(ledger.totals().batches_missing, 0U);
}

TEST(ProducerLedger, SumsAddUpWhateverComesInWhicheverOrder) {
  constexpr std::uint64_t kBatches = 60, kProducers = 3;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    ProducerLedger ledger;
    std::vector<std::uint64_t> deck(kBatches * kProducers);
    std::iota(deck.begin(), deck.end(), 0);
    for (std::size_t i = deck.size(); i > 1; --i) std::swap(deck[i - 1], deck[random.below(i)]);
    LedgerTotals wanted{.producers_seen = kProducers};
    for (const std::uint64_t card : deck) {
      const std::uint64_t producer = card % kProducers + 1, number = card / kProducers;
      const std::uint32_t images = images_of(number);
      switch (random.below(4)) {
        case 0:  // lost
          ++wanted.batches_missing;
          wanted.images_missing += images;
          break;
        case 1:
          ledger.rejected(batch(number, producer));
          ++wanted.batches_rejected;
          wanted.images_rejected += images;
          break;
        case 2:  // twice
          ledger.received(batch(number, producer));
          EXPECT_FALSE(refusal(ledger, batch(number, producer)).empty());
          ++wanted.batches_duplicate;
          ++wanted.batches_received;
          wanted.images_received += images;
          break;
        default:
          ledger.received(batch(number, producer));
          ++wanted.batches_received;
          wanted.images_received += images;
      }
      ASSERT_TRUE(adds_up(ledger.totals()));
    }
    for (std::uint64_t p = 1; p <= kProducers; ++p) ledger.ended(end(kBatches, p));
    wanted.producers_ended = kProducers;
    wanted.images_sent = kProducers * images_before(kBatches);
    ASSERT_EQ(ledger.totals(), wanted) << seed;
  }
}

TEST(ProducerLedger, SumsAddUpWhateverHeadersSay) {
  constexpr std::uint64_t kEdges[] = {0,
                                      1,
                                      2,
                                      3,
                                      7,
                                      1ULL << 32,
                                      1ULL << 47,
                                      (1ULL << 48) - 1,
                                      1ULL << 48,
                                      1ULL << 63,
                                      UINT64_MAX - 1,
                                      UINT64_MAX};
  ProducerLedger ledger({.producers = 4, .gaps = 8});
  std::int64_t refused = 0;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    Random random(3, 0, i);
    const auto number = [&] {
      return random.below(2) == 0 ? random.below(64) : kEdges[random.below(std::size(kEdges))];
    };
    FramedHeader header = batch(random.below(64), 1 + random.below(6));
    if (header.producer < 4) {  // the others send nothing strange, and end
      header.sequence = number();
      if (random.below(3) != 0) header.images_before = number();
      if (random.below(3) == 0) header.images = static_cast<std::uint32_t>(number());
    }
    try {
      const std::uint64_t what = random.below(2000);
      if (what == 0) {
        header.sequence = std::uint64_t{1} << 46;
        header.images_before = std::uint64_t{1} << 47;
        ledger.ended(header);
      } else {
        what % 3 == 0 ? ledger.rejected(header) : ledger.received(header);
      }
    } catch (const DataError&) {
      ++refused;
    }
    ASSERT_TRUE(adds_up(ledger.totals())) << i;
    ASSERT_LT(ledger.totals().images_missing, std::uint64_t{1} << 62) << i;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(ledger.totals().producers_seen, 4U);
}

TEST(ProducerLedger, ThreadsShareIt) {
  constexpr std::uint64_t kBatches = 2000;
  ProducerLedger ledger({.producers = 1, .gaps = kBatches});
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t i = t; i < kBatches; i += 3) ledger.received(batch(i));
      });
    }
  }
  ledger.ended(end(kBatches));
  const LedgerTotals totals = ledger.totals();
  EXPECT_TRUE(adds_up(totals));
  EXPECT_EQ(totals.images_sent, images_before(kBatches));
}

}  // namespace
}  // namespace penstock
