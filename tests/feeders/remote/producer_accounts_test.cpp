// SPDX-License-Identifier: Apache-2.0
// Accounts of producers: closed forms, and sums that agree for any order of messages.
#include "feeders/remote/receive/producer_accounts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Flow = remote::ProducerAccounts::Flow;

/// Batch `sequence` of JPEG files; batch k of a producer has k % 3 + 1 files.
constexpr std::uint32_t images_of(std::uint64_t sequence) {
  return static_cast<std::uint32_t>(sequence % 3 + 1);
}
constexpr std::uint64_t images_before(std::uint64_t sequence) {
  return sequence / 3 * 6 + (sequence % 3 == 0 ? 0 : sequence % 3 == 1 ? 1 : 3);
}
remote::FramedHeader batch(std::uint64_t sequence, std::uint64_t producer = 1) {
  return {.kind = remote::FramedKind::batch,
          .encoding = remote::FramedEncoding::jpeg,
          .producer = producer,
          .sequence = sequence,
          .images_before = images_before(sequence),
          .images = images_of(sequence)};
}
remote::FramedHeader end(std::uint64_t batches, std::uint64_t producer = 1) {
  return {.kind = remote::FramedKind::end,
          .producer = producer,
          .sequence = batches,
          .images_before = images_before(batches)};
}

bool adds_up(const remote::AccountTotals& t) {
  return t.images_sent == t.images_received + t.images_rejected + t.images_missing;
}
std::string refusal(remote::ProducerAccounts& accounts, const remote::FramedHeader& header) {
  const remote::AccountTotals before = accounts.totals();
  const std::string text = thrown_by<DataError>([&] {
    header.kind == remote::FramedKind::end ? accounts.ended(header) : accounts.received(header);
  });
  remote::AccountTotals after = accounts.totals();
  after.batches_duplicate = before.batches_duplicate;
  EXPECT_EQ(after, before) << "what was refused is in the accounts";
  return text;
}

TEST(ProducerAccounts, BatchesInOrderAreReceived) {
  remote::ProducerAccounts accounts;
  for (std::uint64_t i = 0; i < 10; ++i) accounts.received(batch(i));
  EXPECT_EQ(accounts.flow(1), Flow::coming);
  accounts.ended(end(10));
  accounts.ended(end(10));  // repeating the end is allowed
  EXPECT_EQ(accounts.flow(1), Flow::complete);
  EXPECT_EQ(accounts.flow(2), Flow::coming);
  EXPECT_EQ(accounts.totals(), (remote::AccountTotals{.producers_seen = 1,
                                                      .producers_ended = 1,
                                                      .batches_received = 10,
                                                      .images_sent = images_before(10),
                                                      .images_received = images_before(10)}));
}

TEST(ProducerAccounts, SkippedBatchesAreMissingUntilTheyArrive) {
  remote::ProducerAccounts accounts;
  accounts.received(batch(2));
  EXPECT_EQ(accounts.totals().batches_missing, 2U);
  EXPECT_EQ(accounts.totals().images_missing, 3U);
  accounts.received(batch(7));
  EXPECT_EQ(accounts.totals().batches_missing, 6U);
  EXPECT_EQ(accounts.totals().images_missing, 3 + images_before(7) - images_before(3));
  accounts.ended(end(9));
  EXPECT_EQ(accounts.totals().batches_missing, 7U);
  EXPECT_EQ(accounts.flow(1), Flow::stragglers);
  for (const std::uint64_t late : {5, 3, 8, 0, 6, 1, 4}) {
    accounts.received(batch(late));
    EXPECT_TRUE(adds_up(accounts.totals()));
  }
  EXPECT_EQ(accounts.flow(1), Flow::complete);
  EXPECT_EQ(accounts.totals().images_missing, 0U);
  EXPECT_EQ(accounts.totals().images_received, images_before(9));
}

TEST(ProducerAccounts, ANumberThatComesTwiceIsRefusedByName) {
  remote::ProducerAccounts accounts;
  accounts.received(batch(0));
  accounts.rejected(batch(1));
  accounts.received(batch(4));
  EXPECT_EQ(refusal(accounts, batch(0)),
            "batch 0 of producer 0000000000000001 came a second time, or long after later batches");
  EXPECT_TRUE(says(refusal(accounts, batch(1)), "a second time"));
  EXPECT_TRUE(says(refusal(accounts, batch(4)), "a second time"));
  accounts.rejected(batch(4));  // already known
  EXPECT_EQ(accounts.totals().batches_duplicate, 3U);
  EXPECT_EQ(accounts.totals().batches_rejected, 1U);
  EXPECT_EQ(accounts.totals().images_rejected, images_of(1));
  EXPECT_EQ(accounts.totals().batches_missing, 2U);
  EXPECT_TRUE(adds_up(accounts.totals()));
}

TEST(ProducerAccounts, ContradictionsAreRefusedAndChangeNothing) {
  remote::ProducerAccounts accounts;
  accounts.received(batch(0));
  accounts.received(batch(5));
  const auto with = [&](std::uint64_t sequence, std::uint64_t before, std::uint32_t images) {
    remote::FramedHeader header = batch(sequence);
    header.images_before = before;
    header.images = images;
    return says(refusal(accounts, header), "contradicts");
  };
  EXPECT_TRUE(with(6, images_before(6) + 1, 1));  // an additional image, and no batch for it
  EXPECT_TRUE(with(6, images_before(6) - 1, 1));
  EXPECT_TRUE(with(8, images_before(6) + 1, 1));  // two batches share one image
  EXPECT_TRUE(with(6, images_before(6), 0));
  EXPECT_TRUE(with(1, 0, 2));  // after the only image of batch 0
  EXPECT_TRUE(with(1, 2, 2));  // one image between batches 0 and 1
  EXPECT_TRUE(with(2, 3, 7));  // leaves nothing for batches 3 and 4
  EXPECT_TRUE(with(2, 3, UINT32_MAX));
  EXPECT_TRUE(with(2, UINT64_MAX, 1));
  EXPECT_TRUE(with(UINT64_MAX, UINT64_MAX, 1));
  EXPECT_TRUE(with(std::uint64_t{1} << 48, std::uint64_t{1} << 50, 1));
  EXPECT_TRUE(says(refusal(accounts, end(3)), "the end of producer"));
  EXPECT_TRUE(says(refusal(accounts, end(UINT64_MAX)), "contradicts"));
  accounts.ended(end(6));
  EXPECT_TRUE(says(refusal(accounts, end(7)), "contradicts"));
  EXPECT_TRUE(says(refusal(accounts, batch(6)), "its end among them"));
  accounts.rejected(batch(6));
  accounts.received(batch(4));
  EXPECT_EQ(accounts.totals().images_missing, images_before(4) - images_before(1));
  EXPECT_TRUE(adds_up(accounts.totals()));
}

TEST(ProducerAccounts, AShapeIsKept) {
  remote::ProducerAccounts accounts;
  remote::FramedHeader pixels = {.encoding = remote::FramedEncoding::pixels,
                                 .producer = 9,
                                 .images = 4,
                                 .height = 2,
                                 .width = 3,
                                 .channels = 3};
  accounts.hello(pixels, {.name = "loader", .host = "host7", .pid = 4711, .boot = {}, .pool = {}});
  EXPECT_EQ(accounts.name_of(9), "loader on host7, pid 4711");
  EXPECT_EQ(accounts.hello_of(9)->pid, 4711);
  EXPECT_FALSE(accounts.hello_of(8));
  accounts.received(pixels);
  pixels.width = 4;
  pixels.sequence = 1;
  pixels.images_before = 4;
  EXPECT_EQ(refusal(accounts, pixels),
            "loader on host7, pid 4711 sends pixels [4,2,4,3] in message 1, after pixels "
            "[4,2,3,3]; expected one shape as long as it runs");
  remote::FramedHeader jpeg = batch(1, 9);
  EXPECT_TRUE(says(refusal(accounts, jpeg), "sends JPEG files in message 1"));
}

TEST(ProducerAccounts, ProducersWithMissingImagesAreNamed) {
  remote::ProducerAccounts accounts;
  EXPECT_TRUE(accounts.absences(2).empty());
  for (std::uint64_t producer = 1; producer <= 4; ++producer) {
    accounts.received(batch(producer - 1, producer));  // all earlier batches are missing
  }
  const auto absences = accounts.absences(2);
  ASSERT_EQ(absences.size(), 2U);
  EXPECT_EQ(absences[0].name, "producer 0000000000000004");
  EXPECT_EQ(absences[0].images_missing, images_before(3));
  EXPECT_EQ(absences[0].images_sent, images_before(4));
  EXPECT_EQ(absences[1].images_missing, images_before(2));
  accounts.received(batch(0, 2));
  EXPECT_EQ(accounts.absences(9).size(), 2U);
}

TEST(ProducerAccounts, AProducerThatStartsAnewIsAnother) {
  remote::ProducerAccounts accounts;
  accounts.received(batch(0, 1));
  accounts.received(batch(1, 1));
  for (std::uint64_t i = 0; i < 4; ++i) accounts.received(batch(i, 2));
  accounts.ended(end(4, 2));
  EXPECT_EQ(accounts.totals().producers_seen, 2U);
  EXPECT_EQ(accounts.flow(1), Flow::complete);
  EXPECT_EQ(accounts.totals().images_sent, images_before(2) + images_before(4));
}

TEST(ProducerAccounts, MemoryOfGapsIsBounded) {
  remote::ProducerAccounts accounts({.producers = 2, .gaps = 4});
  for (std::uint64_t i = 0; i < 20; ++i) accounts.received(batch(2 * i + 1));
  EXPECT_EQ(accounts.totals().batches_missing, 20U);
  for (std::uint64_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(says(refusal(accounts, batch(2 * i)), "long after")) << i;
  }
  for (std::uint64_t i = 16; i < 20; ++i) accounts.received(batch(2 * i));
  EXPECT_EQ(accounts.totals().batches_missing, 16U);
  EXPECT_TRUE(adds_up(accounts.totals()));
  // One run of missing numbers becomes two.
  accounts.received(batch(100));
  for (std::uint64_t i = 60; i < 100; i += 5) accounts.received(batch(i));
  EXPECT_EQ(accounts.totals().batches_missing, 16U + 60 - 8);
  accounts.ended(end(101));
  EXPECT_TRUE(adds_up(accounts.totals()));
}

TEST(ProducerAccounts, TheNumberOfProducersIsBounded) {
  remote::ProducerAccounts accounts({.producers = 3, .gaps = 4});
  for (std::uint64_t p = 1; p <= 3; ++p) accounts.received(batch(0, p));
  EXPECT_TRUE(says(refusal(accounts, batch(0, 4)), "one producer too many: 3 are known"));
  accounts.rejected(batch(0, 4));
  EXPECT_EQ(accounts.totals().producers_seen, 3U);
  accounts.ended(end(1, 2));
  accounts.received(batch(0, 4));  // replaces the one that ended
  EXPECT_EQ(accounts.totals().producers_seen, 4U);
  EXPECT_EQ(accounts.flow(1), Flow::complete);
  EXPECT_TRUE(says(refusal(accounts, batch(0, 5)), "too many"));
  EXPECT_TRUE(adds_up(accounts.totals()));
}

TEST(ProducerAccounts, AProducerThatHasLeftIsReplaced) {
  remote::ProducerAccounts accounts({.producers = 2, .gaps = 4});
  const auto hello = [&](std::uint64_t producer) {
    remote::FramedHeader header = batch(0, producer);
    header.kind = remote::FramedKind::hello;
    accounts.hello(header, {});
  };
  hello(1);
  hello(2);
  EXPECT_THROW(hello(3), DataError);
  accounts.left(1);
  accounts.left(9);  // no such producer
  hello(1);          // back again
  EXPECT_THROW(hello(3), DataError);
  accounts.left(2);
  hello(3);
  EXPECT_EQ(accounts.totals().producers_seen, 3U);
  EXPECT_THROW(hello(2), DataError);
}

TEST(ProducerAccounts, KilledProducersGiveWayToNewOnes) {
  // Each of them is killed, so none ends; only the one that stays is heard all the time.
  constexpr std::uint64_t kKilled = 40, kStays = 1000;
  remote::ProducerAccounts accounts({.producers = 4, .gaps = 4, .silence = 6});
  for (std::uint64_t p = 1; p <= kKilled; ++p) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      accounts.received(batch(i, p));
      accounts.received(batch(3 * (p - 1) + i, kStays));
    }
  }
  const remote::AccountTotals totals = accounts.totals();
  EXPECT_EQ(totals.producers_seen, kKilled + 1);
  EXPECT_EQ(totals.batches_received, 6 * kKilled);
  EXPECT_EQ(totals.batches_missing, 0U) << "the one that stays was forgotten";
  EXPECT_EQ(totals.images_sent, kKilled * images_before(3) + images_before(3 * kKilled));
  EXPECT_TRUE(adds_up(totals));
}

TEST(ProducerAccounts, AProducerThatKeepsDyingIsLetInAgain) {
  remote::ProducerAccounts accounts({.producers = 4, .gaps = 4, .silence = 4});
  for (std::uint64_t p = 1; p <= 40; ++p) accounts.received(batch(0, p));
  EXPECT_EQ(accounts.totals().producers_seen, 40U);
  EXPECT_TRUE(adds_up(accounts.totals()));
}

TEST(ProducerAccounts, AnActiveProducerIsNotForgotten) {
  remote::ProducerAccounts accounts({.producers = 4, .gaps = 4, .silence = 20});
  for (std::uint64_t i = 0; i < 20; ++i) {
    for (std::uint64_t p = 1; p <= 4; ++p) accounts.received(batch(i, p));
    for (std::uint64_t p = 5; p < 15; ++p) {
      EXPECT_TRUE(says(refusal(accounts, batch(0, p)), "one producer too many")) << p;
    }
  }
  EXPECT_EQ(accounts.totals().producers_seen, 4U);
  EXPECT_EQ(accounts.totals().batches_missing, 0U);
}

TEST(ProducerAccounts, SumsAddUpWhateverComesInWhicheverOrder) {
  constexpr std::uint64_t kBatches = 60, kProducers = 3;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    remote::ProducerAccounts accounts;
    std::vector<std::uint64_t> deck(kBatches * kProducers);
    std::iota(deck.begin(), deck.end(), 0);
    for (std::size_t i = deck.size(); i > 1; --i) std::swap(deck[i - 1], deck[random.below(i)]);
    remote::AccountTotals expected{.producers_seen = kProducers};
    for (const std::uint64_t card : deck) {
      const std::uint64_t producer = card % kProducers + 1, number = card / kProducers;
      const std::uint32_t images = images_of(number);
      switch (random.below(4)) {
        case 0:  // lost
          ++expected.batches_missing;
          expected.images_missing += images;
          break;
        case 1:
          accounts.rejected(batch(number, producer));
          ++expected.batches_rejected;
          expected.images_rejected += images;
          break;
        case 2:  // twice
          accounts.received(batch(number, producer));
          EXPECT_FALSE(refusal(accounts, batch(number, producer)).empty());
          ++expected.batches_duplicate;
          ++expected.batches_received;
          expected.images_received += images;
          break;
        default:
          accounts.received(batch(number, producer));
          ++expected.batches_received;
          expected.images_received += images;
      }
      ASSERT_TRUE(adds_up(accounts.totals()));
    }
    for (std::uint64_t p = 1; p <= kProducers; ++p) accounts.ended(end(kBatches, p));
    expected.producers_ended = kProducers;
    expected.images_sent = kProducers * images_before(kBatches);
    ASSERT_EQ(accounts.totals(), expected) << seed;
  }
}

TEST(ProducerAccounts, SumsAddUpWhateverHeadersSay) {
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
  remote::ProducerAccounts accounts({.producers = 4, .gaps = 8});
  std::int64_t refused = 0;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    Random random(3, 0, i);
    const auto number = [&] {
      return random.below(2) == 0 ? random.below(64) : kEdges[random.below(std::size(kEdges))];
    };
    remote::FramedHeader header = batch(random.below(64), 1 + random.below(6));
    if (header.producer < 4) {  // the others send nothing unusual, and end
      header.sequence = number();
      if (random.below(3) != 0) header.images_before = number();
      if (random.below(3) == 0) header.images = static_cast<std::uint32_t>(number());
    }
    try {
      const std::uint64_t what = random.below(2000);
      if (what == 0) {
        header.sequence = std::uint64_t{1} << 46;
        header.images_before = std::uint64_t{1} << 47;
        accounts.ended(header);
      } else {
        what % 3 == 0 ? accounts.rejected(header) : accounts.received(header);
      }
    } catch (const DataError&) {
      ++refused;
    }
    ASSERT_TRUE(adds_up(accounts.totals())) << i;
    ASSERT_LT(accounts.totals().images_missing, std::uint64_t{1} << 62) << i;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(accounts.totals().producers_seen, 4U);
}

TEST(ProducerAccounts, ThreadsShareIt) {
  constexpr std::uint64_t kBatches = 2000;
  remote::ProducerAccounts accounts({.producers = 1, .gaps = kBatches});
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t i = t; i < kBatches; i += 3) accounts.received(batch(i));
      });
    }
  }
  accounts.ended(end(kBatches));
  const remote::AccountTotals totals = accounts.totals();
  EXPECT_TRUE(adds_up(totals));
  EXPECT_EQ(totals.images_sent, images_before(kBatches));
}

}  // namespace
}  // namespace penstock
