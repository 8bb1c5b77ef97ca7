// SPDX-License-Identifier: Apache-2.0
// Producers that keep their routing id and start again with a hello before the consumer misses
// them.
#include "tests/feeders/remote/credit_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

const std::string kId = "loader-3";

TEST_F(CreditConsume, AHelloFromAKnownRoutingIdIsARestart) {
  Consumer consumer(options());
  consumer.start();
  BareProducer producer(endpoint(), 7, kId);
  producer.enter(2);
  producer.send_batch(0);
  EXPECT_EQ(consumer.next(), 0U);
  producer.await_credit(3);
  producer.send_hello();  // its program lost its state, and kept the connection
  producer.await_welcome();
  ASSERT_TRUE(producer.hear_any().has_value());
  EXPECT_LE(producer.credit(), 2U) << "credits count afresh";
  producer.await_credit(2);
  producer.send_batch(1);
  EXPECT_EQ(consumer.next(), 1U);
  EXPECT_EQ(consumer.counter("producers_welcomed"), 2);
  EXPECT_EQ(consumer.counter("producers_lost"), 1);
  EXPECT_EQ(consumer.counter("producers_seen"), 1);
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
}

TEST_F(CreditConsume, OneThatTakesOverARoutingIdIsWelcomedAndTheOldCreditsAreFree) {
  Consumer consumer("credit=4,credit_together=4,max_producers=1,endpoint=" + endpoint());
  consumer.start();
  BareProducer first(endpoint(), 1, kId);  // its connection remains, as on a host without power
  first.enter(4);
  BareProducer second(endpoint(), 2, kId);
  second.enter(4);
  second.send_batch(3);
  EXPECT_EQ(consumer.next(), 3U);
  EXPECT_TRUE(reaches(consumer, "producers_lost", 1));
  EXPECT_TRUE(
      contains(all_notes(consumer), "disconnected without an end message, after 0 batches"));
}

TEST_F(CreditConsume, WhatItHadSentBeforeItBeganAnewIsTaken) {
  Consumer consumer(options(), 20s, {.action = BadSamplePolicy::Action::fail});
  consumer.start();
  auto first = std::make_unique<BareProducer>(endpoint(), 1, kId);
  first->enter(2);
  // Two fill the ring, and two wait in the consumer's socket, which is not read.
  for (std::uint64_t i = 0; i < 4; ++i) {
    first->await_credit(i + 1);
    first->send_batch(i);
  }
  ASSERT_TRUE(reaches(consumer, "images_received", 8));
  first->linger();
  first.reset();
  BareProducer second(endpoint(), 2, kId);
  second.send_hello();
  std::vector<std::uint64_t> seen;
  for (int i = 0; i < 4; ++i) {
    const std::optional<std::uint64_t> number = consumer.next();
    ASSERT_TRUE(number.has_value());
    seen.push_back(*number);
  }
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 2, 3}));
  second.await_welcome();
  second.await_credit(2);
  second.send_batch(9);
  EXPECT_EQ(consumer.next(), 9U);
  EXPECT_TRUE(reaches(consumer, "producers_lost", 1));
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
}

TEST_F(CreditConsume, ARestartThatIsRefusedLeavesNothingBehind) {
  Consumer consumer(options(), 20s, kSkip);
  consumer.start();
  BareProducer producer(endpoint(), 7, kId);
  producer.enter(2);
  remote::FramedHeader wide = producer.hello_header();
  wide.width = 7;
  producer.send_hello(wide);
  EXPECT_TRUE(contains(producer.hear_refusal(), "[4,5,7,3]; expected [4,5,6,3]"));
  producer.send_hello();
  producer.await_welcome();
  producer.await_credit(2);
  producer.send_batch(0);
  EXPECT_EQ(consumer.next(), 0U);
}

}  // namespace
}  // namespace penstock
