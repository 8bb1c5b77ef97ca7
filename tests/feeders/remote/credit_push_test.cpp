// SPDX-License-Identifier: Apache-2.0
// Both ends by credit, over the socket and through shared memory; and the sender with bare
// consumers that leave, return, or misbehave.
#include <algorithm>
#include <cmath>
#include <set>

#include "tests/feeders/remote/credit_push_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

struct Way {
  bool shared, consumer_binds;
};
class CreditWays : public CreditPushTest, public ::testing::WithParamInterface<Way> {};

TEST_P(CreditWays, EveryBatchOfAFiniteFeederArrivesOnce) {
  const auto [shared, consumer_binds] = GetParam();
  std::optional<Consumer> consumer;
  std::optional<CreditServer> server;
  const auto consume = [&] {
    consumer.emplace("credit=3,endpoint=" + endpoint_ +
                     ",bind=" + (consumer_binds ? "true" : "false"));
    consumer->start();
  };
  if (consumer_binds) consume();
  server.emplace(endpoint_, !consumer_binds, shared);
  if (!consumer_binds) consume();
  server->feed(0, 25);
  server->start();
  for (std::uint64_t i = 0; i < 25; ++i) EXPECT_EQ(consumer->next(), i);
  server->join();
  EXPECT_EQ(server->counter("batches_sent"), 25);
  EXPECT_EQ(server->counter("images_sent"), 25 * kSmall.images);
  EXPECT_EQ(server->counter("leases_lost"), 0);
  server.reset();
  EXPECT_EQ(consumer->counter("batches_missing"), 0);
  EXPECT_EQ(consumer->counter("pools_mapped"), shared ? 1 : 0);
  EXPECT_EQ(consumer->facts().at("producer_0_clock_offset_us"), 0);  // the same machine's clock
}

TEST_P(CreditWays, SlotsThatAreFilledOnceKeepTheirLabels) {
  const auto [shared, consumer_binds] = GetParam();
  if (!consumer_binds) return;
  Consumer consumer("credit=2,endpoint=" + endpoint_);
  consumer.start();
  CreditServer server(endpoint_, false, shared, 3);
  std::jthread feeding([&](const std::stop_token& stop) {
    std::vector<bool> filled(3);
    while (WriteLease lease = server.ring().acquire(stop)) {
      const auto slot = static_cast<std::size_t>(lease.batch().slot);
      if (!filled[slot]) fill_closed_form(lease.batch(), kSmall, slot);
      filled[slot] = true;
      std::move(lease).publish();
    }
  });
  server.start({.batches = 30, .timeout = 20s});
  for (int i = 0; i < 30; ++i) EXPECT_LT(consumer.next().value(), 3U);
  server.join();
  EXPECT_EQ(server.counter("batches_sent"), 30);
}

TEST_P(CreditWays, AFullConsumerHoldsTheProducerUp) {
  const auto [shared, consumer_binds] = GetParam();
  if (!consumer_binds) return;
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, shared, 3);
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

INSTANTIATE_TEST_SUITE_P(Ways, CreditWays,
                         ::testing::Values(Way{false, true}, Way{false, false}, Way{true, true},
                                           Way{true, false}),
                         [](const auto& test) {
                           return std::string(test.param.shared ? "Shared" : "Socket") +
                                  (test.param.consumer_binds ? "ConsumerBinds" : "ProducerBinds");
                         });

TEST_F(CreditPushTest, AConsumerThatGoesGivesItsLeasesBackAndTheNextTakesItsPlace) {
  auto first = std::make_unique<BareConsumer>(endpoint_);
  CreditServer server(endpoint_, false, true, 3);
  server.feed(0);
  server.start();
  first->welcome(first->await(remote::FramedKind::hello));
  first->credit(8);
  for (int i = 0; i < 3; ++i)
    first->await(remote::FramedKind::batch);  // every slot, never returned
  first.reset();
  ASSERT_TRUE(server.reaches("leases_lost", 3));
  Consumer second("credit=2,endpoint=" + endpoint_);
  second.start();
  for (std::uint64_t i = 3; i < 10; ++i) EXPECT_EQ(second.next(), i);
  EXPECT_EQ(second.counter("batches_missing"), 3);
}

TEST_F(CreditPushTest, ProducersTakeTurnsAndAreToldApart) {
  Consumer consumer("credit=2,endpoint=" + endpoint_);
  consumer.start();
  CreditServer shared(endpoint_, false, true), plain(endpoint_, false, false);
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

TEST_F(CreditPushTest, ConsumersOfOtherBatchesAreNamed) {
  Consumer consumer("credit=2,endpoint=" + endpoint_, 20s,
                    {.action = BadSamplePolicy::Action::skip});
  consumer.start();
  BatchSpec wide = kSmall;
  wide.image.width = 7;
  CreditServer server(endpoint_, false, true, 2, wide);
  server.start();
  const std::string text = thrown_by<ConfigError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "refused these batches")) << text;
  EXPECT_TRUE(contains(text, "[4,5,7,3]; expected [4,5,6,3]")) << text;
}

TEST_F(CreditPushTest, AWelcomeToOtherBatchesIsRefused) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, false);
  server.start();
  BatchSpec other = kSmall;
  other.classes = 10;
  consumer.welcome(consumer.await(remote::FramedKind::hello), other);
  const std::string text = thrown_by<ConfigError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "of 10 classes; these are 4 x 5x6x3 of 100 classes")) << text;
}

TEST_F(CreditPushTest, WhatNoConsumerSaysEndsIt) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, false);
  server.start();
  consumer.await(remote::FramedKind::hello);
  consumer.send({bytes_of_text("nonsense")});
  const std::string text = thrown_by<DataError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "is not a consumer with credit")) << text;
}

TEST_F(CreditPushTest, CreditsBeforeAWelcomeAndOfOthersSayNothing) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, false);
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

TEST_F(CreditPushTest, CreditsThatLapsedAreNotUsed) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, true, 2);
  server.feed(0);
  server.start();
  consumer.welcome(consumer.await(remote::FramedKind::hello));
  consumer.credit(2);
  const std::uint64_t first =
      remote::framed_lease(consumer.await(remote::FramedKind::batch).message).lease;
  const std::uint64_t second =
      remote::framed_lease(consumer.await(remote::FramedKind::batch).message).lease;
  consumer.credit(9);                   // no slot is left for these credits
  consumer.credit(3, {first, second});  // now there is a slot for one
  EXPECT_EQ(consumer.await(remote::FramedKind::batch).message.header.sequence, 2U);
  EXPECT_TRUE(server.stays_at("batches_sent", 3));
  consumer.credit(4);
  EXPECT_EQ(consumer.await(remote::FramedKind::batch).message.header.sequence, 3U);
}

TEST_F(CreditPushTest, TheConsumersClockIsKnownWithinItsBound) {
  BareConsumer consumer(endpoint_);
  CreditServer server(endpoint_, false, false);
  server.feed(0, 1);
  server.start();
  constexpr std::int64_t kAhead = 5'000'000'000;
  const Heard hello = consumer.await(remote::FramedKind::hello);
  const std::string text = remote::write_framed_welcome(
      {.images = 4, .height = 5, .width = 6, .channels = 3, .classes = 100, .boot = {}});
  remote::FramedHeader header = header_of(remote::FramedKind::welcome, consumer.producer());
  header.begun_ns = hello.message.header.sent_ns;
  header.ready_ns = header.sent_ns = remote::wall_clock_ns() + kAhead;
  consumer.send(framed_message(header, {bytes_of_text(text)}));
  consumer.credit(1);
  consumer.await(remote::FramedKind::batch);
  server.join();
  const std::optional<remote::ClockBounds::Estimate> clock = server.push().clock();
  ASSERT_TRUE(clock.has_value());
  EXPECT_LE(std::abs(clock->offset_ns - static_cast<double>(kAhead)), clock->bound_ns);
}

TEST_F(CreditPushTest, NobodyIsATimeOut) {
  CreditServer server(endpoint_, true, true);
  server.feed(0);
  server.start({.timeout = 200ms});
  const std::string text = thrown_by<TimeoutError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "no consumer ever connected")) << text;
}

TEST_F(CreditPushTest, AConsumerThatKeepsItsLeasesIsATimeOut) {
  std::string text;
  EXPECT_TRUE(with_patience([&](std::chrono::milliseconds timeout) {
    BareConsumer consumer(endpoint_);
    CreditServer server(endpoint_, false, true, 2);
    server.feed(0, 2);
    server.start({.timeout = timeout});
    consumer.welcome(consumer.await(remote::FramedKind::hello));
    consumer.credit(4);
    text = thrown_by<TimeoutError>([&] { server.join(); });
    return contains(text, "the consumer holds 2 leases");
  })) << text;
}

TEST_F(CreditPushTest, AStopEndsTheWaitAtOnce) {
  EXPECT_TRUE(is_prompt(1s, [&] {
    CreditServer server(endpoint_, true, true);
    server.feed(0);
    server.start();
    const auto asked = std::chrono::steady_clock::now();
    server.stop();
    return std::chrono::steady_clock::now() - asked;
  }));
}

TEST_F(CreditPushTest, TheFeedersFailureIsRethrown) {
  CreditServer server(endpoint_, true, false);
  server.ring().fail(std::make_exception_ptr(DataError("file 7 is damaged")));
  server.start();
  EXPECT_THROW(server.join(), DataError);
}

TEST_F(CreditPushTest, TwoConsumersAreOneTooMany) {
  CreditServer server(endpoint_, true, false);
  server.feed(0);
  server.start();
  Consumer first("credit=2,bind=false,endpoint=" + endpoint_);
  Consumer second("credit=2,bind=false,endpoint=" + endpoint_);
  const std::string text = thrown_by<ConfigError>([&] { server.join(); });
  EXPECT_TRUE(contains(text, "2 consumers are connected")) << text;
}

}  // namespace
}  // namespace penstock
