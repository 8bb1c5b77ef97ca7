// SPDX-License-Identifier: Apache-2.0
// zmq-consume by credit, with producers that follow the protocol and others.
#include <set>

#include "feeders/remote/wire/framed_texts.h"
#include "tests/feeders/remote/credit_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST_F(CreditConsume, AWelcomeHasTheExpectedBatchAndItsTimes) {
  RunningConsumer consumer(options());
  BareProducer producer(endpoint());
  const std::int64_t before = remote::wall_clock_ns();
  remote::FramedHeader header = producer.hello_header();
  producer.send_hello(header);
  const std::optional<Heard> heard = producer.hear_any();
  ASSERT_TRUE(heard.has_value());
  const remote::FramedHeader& got = heard->message.header;
  EXPECT_EQ(got.kind, remote::FramedKind::welcome);
  EXPECT_EQ(got.producer, header.producer);
  EXPECT_EQ(got.begun_ns, header.sent_ns);
  EXPECT_GE(got.ready_ns, before);
  EXPECT_GE(got.sent_ns, got.ready_ns);
  EXPECT_EQ(remote::parse_framed_welcome(heard->message),
            (remote::FramedWelcome{.images = 4,
                                   .height = 5,
                                   .width = 6,
                                   .channels = 3,
                                   .classes = 100,
                                   .boot = remote::boot_id()}));
}

TEST_F(CreditConsume, ARingThatIsFullGivesNoMoreCredit) {
  Consumer consumer(options());  // two slots
  consumer.start();
  BareProducer producer(endpoint());
  producer.enter(2);
  producer.send_batches(4);
  producer.send_batch(4);  // no credit for a sixth batch
  while (producer.hear_any(200ms)) {
  }
  EXPECT_LE(producer.credit(), 4U);
  EXPECT_EQ(consumer.next(), 0U);
  producer.await_credit(5);
}

TEST_F(CreditConsume, HellosOfOtherBatchesAreRefusedWithTheReason) {
  RunningConsumer consumer(options(",max_producers=1"), 20s, kSkip);
  BareProducer wide(endpoint(), 1), files(endpoint(), 2), first(endpoint(), 3),
      second(endpoint(), 4);
  remote::FramedHeader header = wide.hello_header();
  header.width = 7;
  wide.send_hello(header);
  EXPECT_TRUE(says(wide.hear_refusal(), "[4,5,7,3]; expected u8 [4,5,6,3]"));
  header = jpeg_header(4, 2);
  header.kind = remote::FramedKind::hello;
  files.send_hello(header);
  EXPECT_TRUE(says(files.hear_refusal(), "expected pixels"));
  first.enter(2);
  second.send_hello();
  EXPECT_TRUE(says(second.hear_refusal(), "1 producers already"));
  EXPECT_TRUE(reaches(consumer, "producers_refused", 3));
  EXPECT_TRUE(reaches(consumer, "messages_rejected", 3));
  first.send_batch(1);
  EXPECT_EQ(consumer.next(), 1U);
  EXPECT_EQ(consumer.counter("batches_missing"), 1);
}

TEST_F(CreditConsume, ProducersShareTheRoom) {
  RunningConsumer consumer("credit=8,credit_together=6,endpoint=" + endpoint());
  BareProducer a(endpoint(), 1), b(endpoint(), 2), c(endpoint(), 3);
  a.enter(6);  // all credits
  b.send_hello();
  ASSERT_TRUE(b.hear_any().has_value());
  EXPECT_FALSE(b.hear_any(100ms).has_value());  // a welcome, but no room
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 3; ++i) {
    a.send_batch(i);
    seen.insert(consumer.next().value());
  }
  b.await_credit(3);  // the credits that a gave up
  EXPECT_EQ(a.credit(), 6U);
  b.send_batch(10);
  seen.insert(consumer.next().value());
  EXPECT_EQ(seen, (std::set<std::uint64_t>{0, 1, 2, 10}));
}

TEST_F(CreditConsume, CreditsOfALostProducerAreFree) {
  RunningConsumer consumer("credit=4,credit_together=4,endpoint=" + endpoint());
  auto first = std::make_unique<BareProducer>(endpoint(), 1);
  first->enter(4);
  BareProducer second(endpoint(), 2);
  second.send_hello();
  first.reset();
  second.await_credit(4);
  EXPECT_TRUE(reaches(consumer, "producers_lost", 1));
  EXPECT_TRUE(says(consumer.all_notes(), "disconnected without an end message, after 0 batches"));
}

TEST_F(CreditConsume, AProducerMayEndBeforeItsLastBatchesAreRead) {
  RunningConsumer consumer(options());
  {
    BareProducer producer(endpoint());
    producer.enter(2);
    // Two fill the ring. Two and the end wait in the consumer's socket, which is not read.
    producer.send_batches(4);
    ASSERT_TRUE(reaches(consumer, "images_received", 8));
    producer.send(end_message(4));
    producer.linger();
  }
  EXPECT_TRUE(await([&] { return connections() == 0; })) << "libzmq has found it gone";
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(consumer.next(), i);
  EXPECT_TRUE(reaches(consumer, "producers_ended", 1));
  EXPECT_EQ(consumer.counter("producers_lost"), 0);
  EXPECT_TRUE(consumer.all_notes().empty()) << consumer.all_notes();
}

TEST_F(CreditConsume, AProducerThatEndsIsNotLost) {
  RunningConsumer consumer(options());
  {
    BareProducer producer(endpoint());
    producer.enter(2);
    producer.send_batch(0);
    producer.send(end_message(3));
    EXPECT_EQ(consumer.next(), 0U);
    EXPECT_TRUE(reaches(consumer, "batches_missing", 2));
  }
  BareProducer other(endpoint(), 8);
  other.enter(2);
  other.send_batch(1);
  EXPECT_EQ(consumer.next(), 1U);
  EXPECT_EQ(consumer.counter("producers_lost"), 0);
}

TEST_F(CreditConsume, AProducerThatComesBackKeepsItsPlace) {
  RunningConsumer consumer(options(",max_producers=1"));
  auto producer = std::make_unique<BareProducer>(endpoint(), 5);
  producer->enter(2);
  producer->send_batch(0);
  EXPECT_EQ(consumer.next(), 0U);
  BareProducer again(endpoint(), 5);  // the same number, while the other connection is still open
  again.enter(2);
  again.send_batch(1);
  EXPECT_EQ(consumer.next(), 1U);
  EXPECT_EQ(consumer.counter("batches_missing"), 0) << "its numbers go on";
}

TEST_F(CreditConsume, TheClockOffsetOfAProducerLiesWithinItsBound) {
  RunningConsumer consumer(options());
  BareProducer producer(endpoint());
  producer.enter(2);
  constexpr double kAhead = 1e6;  // microseconds that its clock is ahead of the consumer's
  for (std::uint64_t i = 0; i < 4; ++i) {
    producer.await_credit(i + 1);
    remote::FramedHeader header = producer.batch_header(i);
    header.sent_ns += static_cast<std::int64_t>(1e3 * kAhead);
    producer.send(framed_message(header, BareProducer::payload_of(i)));
    EXPECT_EQ(consumer.next(), i);
  }
  const std::map<std::string, double> facts = consumer.facts();
  const double offset = facts.at("producer_0_clock_offset_us");
  const double bound = facts.at("producer_0_clock_bound_us");
  EXPECT_GT(bound, 0);
  EXPECT_LE(std::abs(offset - kAhead), bound);
}

TEST_F(CreditConsume, OptionsThatContradictAreRefused) {
  EXPECT_THROW(Consumer(options(",format=pickle")), ConfigError);
  EXPECT_THROW(Consumer("credit=-1,endpoint=" + endpoint()), ConfigError);
  EXPECT_THROW(Consumer(options(",max_producers=0")), ConfigError);
  EXPECT_THROW(Consumer(options(",credit_together=0")), ConfigError);
}

// ---- credit restart ----------------------------------------------------------

// Producers that keep their routing id and start again with a hello before the consumer misses
// them.

const std::string kId = "loader-3";

TEST_F(CreditConsume, AHelloFromAKnownRoutingIdIsARestart) {
  RunningConsumer consumer(options());
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

TEST_F(CreditConsume, AProducerThatTakesOverARoutingIdIsWelcomedAndTheOldCreditsAreFree) {
  RunningConsumer consumer("credit=4,credit_together=4,max_producers=1,endpoint=" + endpoint());
  BareProducer first(endpoint(), 1, kId);  // its connection remains, as on a host without power
  first.enter(4);
  BareProducer second(endpoint(), 2, kId);
  second.enter(4);
  second.send_batch(3);
  EXPECT_EQ(consumer.next(), 3U);
  EXPECT_TRUE(reaches(consumer, "producers_lost", 1));
  EXPECT_TRUE(says(consumer.all_notes(), "disconnected without an end message, after 0 batches"));
}

TEST_F(CreditConsume, BatchesSentBeforeARestartAreTaken) {
  RunningConsumer consumer(options(), 20s, {.action = BadSamplePolicy::Action::fail});
  auto first = std::make_unique<BareProducer>(endpoint(), 1, kId);
  first->enter(2);
  // Two fill the ring, and two wait in the consumer's socket, which is not read.
  first->send_batches(4);
  ASSERT_TRUE(reaches(consumer, "images_received", 8));
  first->linger();
  first.reset();
  BareProducer second(endpoint(), 2, kId);
  second.send_hello();
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(consumer.next(), i);
  second.await_welcome();
  second.await_credit(2);
  second.send_batch(9);
  EXPECT_EQ(consumer.next(), 9U);
  EXPECT_TRUE(reaches(consumer, "producers_lost", 1));
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
}

TEST_F(CreditConsume, ARestartThatIsRefusedLeavesNothingBehind) {
  RunningConsumer consumer(options(), 20s, kSkip);
  BareProducer producer(endpoint(), 7, kId);
  producer.enter(2);
  remote::FramedHeader wide = producer.hello_header();
  wide.width = 7;
  producer.send_hello(wide);
  EXPECT_TRUE(says(producer.hear_refusal(), "[4,5,7,3]; expected u8 [4,5,6,3]"));
  producer.send_hello();
  producer.await_welcome();
  producer.await_credit(2);
  producer.send_batch(0);
  EXPECT_EQ(consumer.next(), 0U);
}

}  // namespace
}  // namespace penstock
