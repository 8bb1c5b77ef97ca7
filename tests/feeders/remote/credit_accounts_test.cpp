// SPDX-License-Identifier: Apache-2.0
// Producers that send by credit have the same accounts as producers that push.
#include <map>
#include <string>
#include <vector>

#include "feeders/remote/wire/framed_texts.h"
#include "tests/feeders/remote/sender_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr const char* kAccounts[] = {"producers_seen",    "producers_ended", "images_sent",
                                     "images_missing",    "images_rejected", "batches_missing",
                                     "batches_duplicate", "images_received"};

std::map<std::string, std::int64_t> accounts_of(const Consumer& consumer) {
  std::map<std::string, std::int64_t> accounts;
  for (const char* const name : kAccounts) accounts[name] = consumer.counter(name);
  return accounts;
}

/// A batch of producer 7, with a label that no run has.
FrameList bad_batch(std::uint64_t sequence) {
  FrameList payload = BareProducer::payload_of(sequence);
  payload[1][0] = std::byte{100};
  return framed_message(pixels_header(kSmall, 7, sequence), std::move(payload));
}

FrameList batch(std::uint64_t sequence) {
  return framed_message(pixels_header(kSmall, 7, sequence), BareProducer::payload_of(sequence));
}

/// Good, refused, skipped, late, duplicate and lost batches, and the end.
std::vector<FrameList> eventful_messages() {
  remote::FramedHeader hello = pixels_header(kSmall);
  hello.kind = remote::FramedKind::hello;
  FrameList cut = batch(4);
  cut[1].pop_back();
  return {framed_message(hello, {bytes_of_text(remote::write_framed_hello(bare_hello()))}),
          batch(0),
          bad_batch(1),
          batch(3),
          batch(3),
          batch(2),
          cut,
          batch(6),
          end_message(10)};
}

TEST_F(CreditConsume, AccountsEqualTheAccountsOfPush) {
  const std::vector<std::uint64_t> arrive{0, 3, 2, 6};
  Consumer credited("credit=9,endpoint=" + endpoint() + "-credit", 20s, kSkip);
  Consumer pushed("endpoint=" + endpoint() + "-push", 20s, kSkip);
  BareProducer creditor(endpoint() + "-credit");
  zmq::context_t context;
  zmq::socket_t pusher(context, ZMQ_PUSH);
  pusher.set(zmq::sockopt::sndtimeo, 20000);
  pusher.connect(endpoint() + "-push");
  credited.start();
  pushed.start();
  for (const FrameList& message : eventful_messages()) {
    creditor.send(message);
    creditor.await_credit(9);
    say(pusher, message);
  }
  for (const std::uint64_t number : arrive) {
    EXPECT_EQ(credited.next(), number);
    EXPECT_EQ(pushed.next(), number);
  }
  ASSERT_TRUE(reaches(credited, "producers_ended", 1) && reaches(pushed, "producers_ended", 1));
  ASSERT_TRUE(reaches(credited, "images_received", 16) && reaches(pushed, "images_received", 16));
  const std::map<std::string, std::int64_t> accounts = accounts_of(credited);
  EXPECT_EQ(accounts, accounts_of(pushed));
  EXPECT_EQ(accounts, (std::map<std::string, std::int64_t>{{"producers_seen", 1},
                                                           {"producers_ended", 1},
                                                           {"images_sent", 40},
                                                           {"images_missing", 16},
                                                           {"images_rejected", 8},
                                                           {"batches_missing", 4},
                                                           {"batches_duplicate", 1},
                                                           {"images_received", 16}}));
  EXPECT_TRUE(credited.adds_up());
  credited.stop();
  pushed.stop();
  const std::string missing = "of 40 images that producers sent, 16 are missing";
  EXPECT_TRUE(says(credited.all_notes(), missing));
  EXPECT_TRUE(says(pushed.all_notes(), missing));
}

TEST_F(CreditConsume, ABatchWithoutACreditIsRefusedAndNotMissing) {
  Consumer consumer(options(), 20s, kSkip, {.slots = 8});
  BareProducer producer(endpoint());
  producer.send_hello();
  for (std::uint64_t i = 0; i < 6; ++i) producer.send_batch(i);
  consumer.start();
  ASSERT_TRUE(reaches(consumer, "messages_received", 7));
  ASSERT_TRUE(reaches(consumer, "messages_rejected", 1));
  ASSERT_TRUE(reaches(consumer, "images_sent", 24));
  EXPECT_TRUE(await([&] { return consumer.adds_up(); }));
  EXPECT_EQ(consumer.counter("images_missing"), 0);
  EXPECT_GE(consumer.counter("images_rejected"), 4);
  EXPECT_TRUE(says(consumer.all_notes(), "it had no credit"));
}

TEST_F(CreditConsume, StrangersAreInNoAccounts) {
  RunningConsumer consumer(options(), 20s, kSkip);
  BareProducer producer(endpoint(), 7), stranger(endpoint(), 8);
  producer.enter(2);
  stranger.send_batch(5);   // before a hello
  stranger.send(batch(5));  // and under another producer's number
  ASSERT_TRUE(reaches(consumer, "messages_rejected", 2));
  producer.send_batch(0);
  EXPECT_EQ(consumer.next(), 0U);
  EXPECT_TRUE(says(consumer.all_notes(), "not accepted"));
  EXPECT_EQ(consumer.counter("producers_seen"), 1);
  EXPECT_EQ(consumer.counter("images_sent"), 4);
  EXPECT_EQ(consumer.counter("images_rejected"), 0);
}

TEST_F(CreditConsume, TheDataEndWithTheExpectedProducers) {
  RunningConsumer consumer(options(",producers=2"));
  Server first(endpoint(), false, Way::credit), second(endpoint(), false, Way::shared);
  first.feed(0, 3);
  second.feed(10, 2);
  first.start();
  second.start();
  int batches = 0;
  while (consumer.next()) ++batches;
  EXPECT_EQ(batches, 5);
  EXPECT_EQ(consumer.counter("producers_ended"), 2);
  consumer.stop();
  const std::map<std::string, double> facts = consumer.facts();
  EXPECT_TRUE(facts.contains("hand_off_median_s"));
  EXPECT_TRUE(says(consumer.all_notes(), "of a batch's time its producer made it"));
}

TEST_F(CreditConsume, AProducerThatComesBackContinuesItsAccount) {
  RunningConsumer consumer(options());
  {
    BareProducer producer(endpoint());
    producer.enter(2);
    producer.send_batch(0);
    EXPECT_EQ(consumer.next(), 0U);
  }
  ASSERT_TRUE(reaches(consumer, "producers_lost", 1));
  BareProducer again(endpoint());
  again.enter(2);
  again.send_batch(2);  // one was lost in transit
  EXPECT_EQ(consumer.next(), 2U);
  EXPECT_EQ(consumer.counter("producers_seen"), 1);
  EXPECT_EQ(consumer.counter("images_sent"), 12);
  EXPECT_EQ(consumer.counter("images_missing"), 4);
}

}  // namespace
}  // namespace penstock
