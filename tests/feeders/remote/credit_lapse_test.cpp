// SPDX-License-Identifier: Apache-2.0
// Credits lapse if a silent producer does not use them while others wait for credits.
#include <algorithm>
#include <vector>

#include "tests/feeders/remote/sender_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class CreditLapse : public CreditConsume {
 protected:
  /// With a timeout of ten seconds, credits may lie unused for one second.
  std::string options() const { return "credit=6,credit_together=6,endpoint=" + endpoint(); }
  /// Waits until the silent producer has only the used credits and one more.
  static bool await_lapse(BareProducer& silent, std::uint64_t total) {
    while (silent.credit() != total) {
      if (!silent.hear_any()) return false;
    }
    return true;
  }
};

TEST_F(CreditLapse, OthersGetWhatASilentOneLeavesUnused) {
  RunningConsumer consumer(options(), 10s);
  BareProducer silent(endpoint(), 1), busy(endpoint(), 2);
  silent.enter(6);
  silent.send_batch(0);
  EXPECT_EQ(consumer.next(), 0U);
  silent.await_credit(7);
  busy.enter(6);  // all room
  EXPECT_TRUE(await_lapse(silent, 2));
  EXPECT_EQ(consumer.counter("credits_lapsed"), 6);
  EXPECT_TRUE(says(consumer.all_notes(), "does not use its credits"));
  for (std::uint64_t i = 0; i < 20; ++i) {
    busy.await_credit(i + 1);
    busy.send_batch(i);
    EXPECT_EQ(consumer.next(), i);
  }
}

TEST_F(CreditLapse, AProducerThatUsesItsLastCreditTakesPartAgain) {
  RunningConsumer consumer(options(), 10s);
  BareProducer silent(endpoint(), 1), busy(endpoint(), 2);
  silent.enter(6);
  busy.enter(6);
  ASSERT_TRUE(await_lapse(silent, 1));
  silent.send_batch(3);
  EXPECT_EQ(consumer.next(), 3U);
  for (std::uint64_t i = 0; i < 12; ++i) {
    busy.await_credit(i + 1);
    busy.send_batch(i);
    EXPECT_EQ(consumer.next(), i);
  }
  silent.await_credit(4);  // half of the room
}

TEST_F(CreditLapse, BatchesInFlightAreTakenOnce) {
  RunningConsumer consumer(options(), 10s, {}, {.slots = 16});
  BareProducer silent(endpoint(), 1), busy(endpoint(), 2);
  silent.enter(6);
  busy.enter(6);
  // As if it had not received the lapse of its credits.
  for (std::uint64_t i = 0; i < 6; ++i) silent.send_batch(i);
  for (std::uint64_t i = 0; i < 6; ++i) busy.send_batch(10 + i);
  std::vector<std::uint64_t> seen;
  for (int i = 0; i < 12; ++i) seen.push_back(consumer.next().value());
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
  EXPECT_EQ(consumer.counter("batches_duplicate"), 0);
  silent.await_credit(7);
}

TEST_F(CreditLapse, NoCreditLapsesIfNoProducerWaits) {
  RunningConsumer consumer("credit=3,endpoint=" + endpoint(), 5s);
  BareProducer silent(endpoint(), 1), busy(endpoint(), 2);
  silent.enter(3);
  busy.enter(3);
  // Longer than credits may lie unused elsewhere: a tenth of the timeout.
  const auto end = std::chrono::steady_clock::now() + 600ms;
  for (std::uint64_t i = 0; i < 8 || std::chrono::steady_clock::now() < end; ++i) {
    busy.send_batch(i);
    EXPECT_EQ(consumer.next(), i % 25);  // labels distinguish 25 batches
    busy.await_credit(i + 4);
  }
  EXPECT_EQ(consumer.counter("credits_lapsed"), 0);
  EXPECT_EQ(silent.credit(), 3U);
}

class StoppedProducer : public CreditConsume, public ::testing::WithParamInterface<bool> {};

TEST_P(StoppedProducer, DelaysNoOtherAndLosesNothingWhenItGoesOn) {
  const bool shared = GetParam();
  Forked slow([&] {
    Server server(endpoint(), false, by_credit(shared));
    server.feed(0, 12);
    server.start({.img_per_s = 3.0 * kSmall.images, .timeout = 60s});
    server.join();
  });
  RunningConsumer consumer("credit=2,credit_together=2,endpoint=" + endpoint(), 20s);
  std::vector<std::uint64_t> seen;
  const auto take = [&] { seen.push_back(consumer.next().value()); };
  take();
  take();
  slow.signal(SIGSTOP);
  slow.await_stop();
  {
    Server busy(endpoint(), false, by_credit(shared));
    busy.feed(12, 13);
    busy.start();
    // Batches of the slow producer may be among them.
    while (std::count_if(seen.begin(), seen.end(), [](auto number) { return number >= 12; }) < 13) {
      take();
    }
    busy.join();
  }
  slow.signal(SIGCONT);
  while (seen.size() < 25) take();
  EXPECT_EQ(slow.join(), 0);
  for (const std::uint64_t begin : {0U, 12U}) {
    std::vector<std::uint64_t> theirs, expected;
    for (const std::uint64_t number : seen) {
      if ((number >= 12) == (begin == 12)) theirs.push_back(number);
    }
    for (std::uint64_t i = begin; i < (begin == 0 ? 12 : 25); ++i) expected.push_back(i);
    EXPECT_EQ(theirs, expected) << "each once, in order";
  }
  EXPECT_TRUE(reaches(consumer, "producers_ended", 2));
  EXPECT_EQ(consumer.counter("images_missing"), 0);
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
  EXPECT_EQ(consumer.counter("producers_lost"), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, StoppedProducer, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "Shared" : "Socket");
});

}  // namespace
}  // namespace penstock
