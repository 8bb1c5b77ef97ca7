// SPDX-License-Identifier: Apache-2.0
// Both ends by credit, over the socket and through shared memory; and the sender with bare
// consumers that leave, return, or misbehave.
#include <cmath>
#include <set>

#include "feeders/remote/wire/framed_texts.h"
#include "tests/feeders/remote/sender_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class CreditWays : public SenderTest, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Ways, CreditWays, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "Shared" : "Socket");
});

TEST_P(CreditWays, AFullConsumerHoldsTheProducerUp) {
  const bool shared = GetParam();
  BareConsumer consumer(endpoint());
  Server server(endpoint(), false, by_credit(shared), 3);
  server.feed(0);
  server.start();
  consumer.welcome(consumer.await(remote::FramedKind::hello));
  consumer.credit(2);
  const remote::FramedLease first = [&] {
    const Heard heard = consumer.await(remote::FramedKind::batch);
    EXPECT_EQ(heard.message.is_shared(), shared);
    return shared ? remote::framed_lease(heard.message) : remote::FramedLease{};
  }();
  EXPECT_EQ(consumer.await(remote::FramedKind::batch).message.header.sequence, 1U);
  EXPECT_TRUE(server.stays_at("batches_sent", 2));  // not more than the credit
  consumer.credit(2);                               // the same total again
  consumer.credit(1);                               // a used credit lapsed: nothing changes
  consumer.credit(10);
  EXPECT_EQ(consumer.await(remote::FramedKind::batch).message.header.sequence, 2U);
  if (shared) {
    // All three slots are lent: credit alone does not help.
    EXPECT_TRUE(server.stays_at("batches_sent", 3));
    consumer.credit(10, {first.lease, 12345, first.lease});  // an unknown lease, and one twice
    EXPECT_EQ(consumer.await(remote::FramedKind::batch).message.header.sequence, 3U);
    EXPECT_TRUE(server.stays_at("batches_sent", 4));
  }
}

TEST_F(SenderTest, ProducersTakeTurnsAndAreToldApart) {
  RunningConsumer consumer("credit=2,endpoint=" + endpoint());
  Server shared(endpoint(), false, Way::shared), plain(endpoint(), false, Way::credit);
  shared.feed(0, 12);
  plain.feed(12, 12);
  shared.start();
  plain.start();
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 24; ++i) seen.insert(consumer.next().value());
  EXPECT_EQ(seen.size(), 24U);
  shared.join();
  plain.join();
  EXPECT_EQ(consumer.counter("producers_welcomed"), 2);
}

TEST_F(SenderTest, ConsumersOfOtherBatchesAreNamed) {
  RunningConsumer consumer("credit=2,endpoint=" + endpoint(), 20s,
                           {.action = BadSamplePolicy::Action::skip});
  BatchSpec wide = kSmall;
  wide.image.width = 7;
  Server server(endpoint(), false, Way::shared, 2, wide);
  server.start();
  const std::string text = thrown_by<ConfigError>([&] { server.join(); });
  EXPECT_TRUE(says(text, "refused these batches"));
  EXPECT_TRUE(says(text, "[4,5,7,3]; expected u8 [4,5,6,3]"));
}

TEST_F(SenderTest, AWelcomeToOtherBatchesIsRefused) {
  BareConsumer consumer(endpoint());
  Server server(endpoint(), false, Way::credit);
  server.start();
  BatchSpec other = kSmall;
  other.classes = 10;
  consumer.welcome(consumer.await(remote::FramedKind::hello), other);
  const std::string text = thrown_by<ConfigError>([&] { server.join(); });
  EXPECT_TRUE(says(text, "of 10 classes; these are 4 x 5x6x3 of 100 classes"));
}

TEST_F(SenderTest, AMessageThatNoConsumerSendsEndsIt) {
  BareConsumer consumer(endpoint());
  Server server(endpoint(), false, Way::credit);
  server.start();
  consumer.await(remote::FramedKind::hello);
  consumer.send({bytes_of_text("nonsense")});
  const std::string text = thrown_by<DataError>([&] { server.join(); });
  EXPECT_TRUE(says(text, "is not a consumer with credit"));
}

TEST_F(SenderTest, AStrangersMessageDoesNotEndOneThatListens) {
  Server server(endpoint(), true, Way::credit);
  server.feed(0);
  server.start();
  {
    BareConsumer stranger(endpoint(), false);
    stranger.await(remote::FramedKind::hello);
    stranger.send({bytes_of_text("nonsense")});
    stranger.await(remote::FramedKind::hello);  // it was cut off, and has come again
  }
  BareConsumer consumer(endpoint(), false);
  consumer.welcome(consumer.await(remote::FramedKind::hello));
  consumer.credit(1);
  consumer.await(remote::FramedKind::batch);
  server.stop();
}

TEST_F(SenderTest, CreditsBeforeAWelcomeAndOfOthersSayNothing) {
  BareConsumer consumer(endpoint());
  Server server(endpoint(), false, Way::credit);
  server.feed(0);
  server.start();
  const Heard hello = consumer.await(remote::FramedKind::hello);
  consumer.credit(5);
  consumer.welcome(hello);
  remote::FramedHeader other = header_of(remote::FramedKind::credit, consumer.producer() + 1);
  other.sequence = 5;
  consumer.send(framed_message(other, {}));
  consumer.credit(1);
  consumer.await(remote::FramedKind::batch);
  EXPECT_TRUE(server.stays_at("batches_sent", 1));
}

TEST_F(SenderTest, CreditsThatLapsedAreNotUsed) {
  BareConsumer consumer(endpoint());
  Server server(endpoint(), false, Way::shared, 2);
  server.feed(0);
  server.start();
  consumer.welcome(consumer.await(remote::FramedKind::hello));
  consumer.credit(2);
  const auto lease = [&] {
    return remote::framed_lease(consumer.await(remote::FramedKind::batch).message).lease;
  };
  const std::uint64_t first = lease(), second = lease();
  consumer.credit(9);                   // no slot is left for these credits
  consumer.credit(3, {first, second});  // now there is a slot for one
  EXPECT_EQ(consumer.await(remote::FramedKind::batch).message.header.sequence, 2U);
  EXPECT_TRUE(server.stays_at("batches_sent", 3));
  consumer.credit(4);
  EXPECT_EQ(consumer.await(remote::FramedKind::batch).message.header.sequence, 3U);
}

TEST_F(SenderTest, TheConsumersClockIsKnownWithinItsBound) {
  BareConsumer consumer(endpoint());
  Server server(endpoint(), false, Way::credit);
  server.feed(0, 1);
  server.start();
  constexpr std::int64_t kAhead = 5'000'000'000;
  consumer.welcome(consumer.await(remote::FramedKind::hello), kSmall, kAhead);
  consumer.credit(1);
  consumer.await(remote::FramedKind::batch);
  server.join();
  const std::optional<remote::ClockBounds::Estimate> clock = server.sender().clock();
  ASSERT_TRUE(clock.has_value());
  EXPECT_LE(std::abs(clock->offset_ns - static_cast<double>(kAhead)), clock->bound_ns);
}

TEST_F(SenderTest, AConsumerThatKeepsItsLeasesIsATimeOut) {
  std::string text;
  EXPECT_TRUE(with_patience([&](std::chrono::milliseconds timeout) {
    BareConsumer consumer(endpoint());
    Server server(endpoint(), false, Way::shared, 2);
    server.feed(0, 2);
    server.start({.timeout = timeout});
    consumer.welcome(consumer.await(remote::FramedKind::hello));
    consumer.credit(4);
    text = thrown_by<TimeoutError>([&] { server.join(); });
    return says(text, "the consumer holds 2 leases");
  })) << text;
}

TEST_F(SenderTest, TwoConsumersAreOneTooMany) {
  Server server(endpoint(), true, Way::credit);
  server.feed(0);
  server.start();
  Consumer first("credit=2,bind=false,endpoint=" + endpoint());
  Consumer second("credit=2,bind=false,endpoint=" + endpoint());
  const std::string text = thrown_by<ConfigError>([&] { server.join(); });
  EXPECT_TRUE(says(text, "2 consumers are connected"));
}

// ---- credit push faults ------------------------------------------------------

// Feeding by credit while either end is killed.

/// Takes batches and checks them by next(), because a full ring blocks the consumer, until the
/// consumer has counted this many producers.
bool take_until(Consumer& consumer, const std::string& counter, std::int64_t producers) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (consumer.counter(counter) < producers && std::chrono::steady_clock::now() < deadline) {
    if (!consumer.next()) return false;
  }
  return consumer.counter(counter) == producers;
}

TEST_F(SenderTest, AProducerThatIsKilledLosesItsOwnBatchesAlone) {
  const auto produce = [&] {
    Server server(endpoint(), false, Way::shared);
    server.feed(0);
    server.start();
    while (true) pause();
  };
  Forked first(produce), second(produce);
  RunningConsumer consumer("credit=2,endpoint=" + endpoint());
  ASSERT_TRUE(take_until(consumer, "producers_welcomed", 2));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(consumer.next().has_value());
  first.kill_it();
  EXPECT_TRUE(take_until(consumer, "producers_lost", 1));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(consumer.next().has_value());
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
}

TEST_F(SenderTest, AConsumerThatIsKilledGivesItsLeasesBackAndTheNextTakesItsPlace) {
  Forked first([&] {
    BareConsumer consumer(endpoint());
    consumer.welcome(consumer.await(remote::FramedKind::hello));
    consumer.credit(8);
    while (true) pause();
  });
  Server server(endpoint(), false, Way::shared, 3);
  server.feed(0);
  server.start();
  ASSERT_TRUE(server.stays_at("batches_sent", 3));  // every slot is in use
  first.kill_it();
  ASSERT_TRUE(server.reaches("leases_lost", 3));
  RunningConsumer second("credit=2,endpoint=" + endpoint());
  for (std::uint64_t i = 3; i < 10; ++i) EXPECT_EQ(second.next(), i);
  EXPECT_EQ(second.counter("batches_missing"), 3);
}

}  // namespace
}  // namespace penstock
