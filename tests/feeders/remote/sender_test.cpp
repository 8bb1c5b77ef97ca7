// SPDX-License-Identifier: Apache-2.0
// Both ends: a feeder's ring through a Sender and a socket into zmq-consume, in each way.
#include "tests/feeders/remote/sender_fixture.h"

#include <atomic>
#include <cmath>
#include <optional>

namespace penstock {
namespace {

using namespace std::chrono_literals;

std::string name_of(Way way) {
  return way == Way::push ? "Push" : way == Way::credit ? "Credit" : "Shared";
}

class SenderToConsumer : public SenderTest {
 protected:
  std::string options_for(Way way) const {
    return (way == Way::push ? "endpoint=" : "credit=3,endpoint=") + endpoint();
  }
};

struct Ends {
  Way way;
  bool consumer_binds;
};
class SenderEnds : public SenderToConsumer, public ::testing::WithParamInterface<Ends> {};

INSTANTIATE_TEST_SUITE_P(Ends, SenderEnds,
                         ::testing::Values(Ends{Way::push, true}, Ends{Way::push, false},
                                           Ends{Way::credit, true}, Ends{Way::credit, false},
                                           Ends{Way::shared, true}, Ends{Way::shared, false}),
                         [](const auto& test) {
                           return name_of(test.param.way) +
                                  (test.param.consumer_binds ? "ConsumerBinds" : "ProducerBinds");
                         });

TEST_P(SenderEnds, EveryBatchOfAFiniteFeederArrivesOnce) {
  const auto [way, consumer_binds] = GetParam();
  std::optional<RunningConsumer> consumer;
  std::optional<Server> server;
  const std::string options = options_for(way) + ",bind=" + (consumer_binds ? "true" : "false");
  if (consumer_binds) consumer.emplace(options);
  server.emplace(endpoint(), !consumer_binds, way);
  if (!consumer_binds) consumer.emplace(options);
  server->feed(0, 25);
  server->start();
  for (std::uint64_t i = 0; i < 25; ++i) EXPECT_EQ(consumer->next(), i);
  server->join();
  EXPECT_EQ(server->counter("batches_sent"), 25);
  EXPECT_EQ(server->counter("images_sent"), 25 * kSmall.images);
  if (way == Way::push) return;
  EXPECT_EQ(server->counter("leases_lost"), 0);
  server.reset();
  EXPECT_EQ(consumer->counter("batches_missing"), 0);
  EXPECT_EQ(consumer->counter("pools_mapped"), way == Way::shared ? 1 : 0);
  EXPECT_EQ(consumer->facts().at("producer_0_clock_offset_us"), 0);  // the same machine's clock
}

class SenderWays : public SenderToConsumer, public ::testing::WithParamInterface<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, SenderWays, ::testing::Values(Way::push, Way::credit, Way::shared),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(SenderWays, SentBatchesArriveAfterTheSenderEnds) {
  RunningConsumer consumer(options_for(GetParam()));
  std::jthread sending([&] {
    Server server(endpoint(), false, GetParam());
    server.feed(0, 25);
    server.run(kForEver);
  });
  for (std::uint64_t i = 0; i < 25; ++i) EXPECT_EQ(consumer.next(), i);
}

TEST_P(SenderWays, SlotsThatAreFilledOnceKeepTheirLabels) {
  RunningConsumer consumer(options_for(GetParam()));
  Server server(endpoint(), false, GetParam(), 3);
  server.feed_constant();
  server.start({.batches = 30, .timeout = 20s});
  for (int i = 0; i < 30; ++i) EXPECT_LT(consumer.next().value_or(99), 3U);
  server.join();
  EXPECT_EQ(server.counter("batches_sent"), 30);
  const std::size_t message = GetParam() == Way::push
                                  ? remote::BatchLayout(kSmall, kSmall.images).size()
                                  : kSmall.pixel_bytes() + kSmall.label_bytes();
  EXPECT_EQ(server.counter("bytes_sent"), static_cast<std::int64_t>(30 * message));
}

TEST_P(SenderWays, NoConsumerIsATimeout) {
  Server server(endpoint(), true, GetParam());
  server.feed(0);
  const std::string text = thrown_by<TimeoutError>([&] { server.run({.timeout = 200ms}); });
  EXPECT_TRUE(says(text, "no consumer ever connected"));
  EXPECT_GE(server.counter("send_wait_ns"), 200'000'000) << "a wait that came to nothing counts";
}

TEST_P(SenderWays, AStopEndsTheWaitForAConsumerAtOnce) {
  EXPECT_TRUE(is_prompt(500ms, [&] {
    Server server(endpoint(), true, GetParam());
    server.feed(0);
    server.start();
    const auto asked = std::chrono::steady_clock::now();
    server.stop();
    return std::chrono::steady_clock::now() - asked;
  }));
}

TEST_P(SenderWays, TheFeedersFailureIsRethrown) {
  Server server(endpoint(), true, GetParam());
  server.ring().fail(std::make_exception_ptr(DataError("file 7 is damaged")));
  EXPECT_THROW(server.run(kForEver), DataError);
}

/// A clock that jumps to every deadline and records it.
class JumpingClock final : public Clock {
 public:
  Time now() const override { return Time(Nanoseconds(now_)); }
  void sleep_until(Time deadline, std::stop_token) override {
    deadlines.push_back(deadline);
    now_ = std::max<std::int64_t>(now_, Nanoseconds(deadline.time_since_epoch()).count());
  }
  void wake(Gate& gate) override { gate.condition.notify_all(); }

  std::vector<Time> deadlines;  // of the only thread that sleeps

 protected:
  bool wait_for_condition(std::unique_lock<std::mutex>& lock, Gate& gate, std::stop_token stop,
                          Condition ready) override {
    return gate.condition.wait(lock, std::move(stop), ready);
  }

 private:
  std::atomic<std::int64_t> now_{1'000'000'000};
};

TEST_F(SenderTest, ARateIsThatOfTheClock) {
  constexpr std::size_t kBatches = 9;
  JumpingClock clock;
  Probe probe;
  HostDevice host(clock);
  remote::FrameMemory memory(host);
  Device* const reader = &memory;
  BatchRing ring(kSmall, kBatches, memory, MemoryKind::pinned, std::span(&reader, 1),
                 Order::relaxed, clock);
  for (std::size_t i = 0; i < kBatches; ++i) {
    WriteLease lease = ring.acquire({});
    fill_closed_form(lease.batch(), kSmall, i);
    lease.batch().valid = kSmall.images;
    std::move(lease).publish();
  }
  ring.close();
  RunningConsumer consumer("endpoint=" + endpoint());
  std::jthread draining([&] {
    for (std::size_t i = 0; i < kBatches; ++i) EXPECT_EQ(consumer.next(), i);
  });
  remote::Sender push(
      remote::make_ring_supply(
          ring, remote::make_outgoing(remote::MessageFormat::zmq_op, kSmall, clock), clock, probe),
      net::parse_endpoint(endpoint()),
      {.role = remote::ZmqSocketOptions::Role::push, .bind = false, .hwm = 2}, clock, probe);
  const Time start = clock.now();
  push.run({.img_per_s = 7, .timeout = std::chrono::hours(1000)}, {});
  ASSERT_GE(clock.deadlines.size(), kBatches);
  for (std::size_t i = 0; i < kBatches; ++i) {
    const double due = static_cast<double>((i + 1) * static_cast<std::size_t>(kSmall.images)) / 7;
    EXPECT_EQ((clock.deadlines[i] - start).count(), std::llround(due * 1e9)) << i;
  }
}

// ---- zmq churn ---------------------------------------------------------------

// Producers and consumers that connect, leave and return during the transfer.

/// Batches with different numbers.
constexpr std::uint64_t kNumbers = 25;
constexpr std::int64_t kHwm = 2;

/// Sends this many of the batches 0 to 24, repeatedly; 0: until stopped. Unless stopped, all of
/// them have been received on return.
void serve(const std::string& endpoint, bool bind, std::int64_t batches,
           const std::stop_token& stop, const BatchSpec& spec = kSmall) {
  Server server(endpoint, bind, Way::push, kHwm + 2, spec);
  server.feed(0);
  server.run({.batches = batches, .timeout = 20s}, stop);
}

/// The parameter: do consumers bind?
class ZmqChurn : public ZmqConsume, public ::testing::WithParamInterface<bool> {
 protected:
  std::string ends() const {
    return "endpoint=" + endpoint() + ",hwm=" + std::to_string(kHwm) +
           (GetParam() ? "" : ",bind=false");
  }
};

INSTANTIATE_TEST_SUITE_P(Binds, ZmqChurn, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Consumer" : "Producer"; });

TEST_P(ZmqChurn, ProducersThatComeAndGoLoseNothing) {
  constexpr int kProducers = 4;
  std::string text;
  EXPECT_TRUE(with_patience(
      [&](std::chrono::milliseconds timeout) {
        RunningConsumer consumer(ends(), timeout);
        const std::jthread producing([&](const std::stop_token& stop) {
          for (int i = 0; i < kProducers; ++i) serve(endpoint(), !GetParam(), kNumbers, stop);
        });
        for (std::uint64_t i = 0; i < kNumbers * kProducers; ++i) {
          if (!comes(consumer, i % kNumbers)) return false;
        }
        text = thrown_by<TimeoutError>([&] { consumer.next(); });
        return static_cast<bool>(
            says(text, "100 messages came; 4 of 4 connections of producers have ended"));
      },
      1s))
      << text;
}

TEST_P(ZmqChurn, TheNextConsumerGoesOnBehindWhatTheLastOneHeld) {
  // Larger than the kernel's buffers of a connection.
  constexpr BatchSpec kLarge{.images = 4, .image = {160, 160, 3}, .classes = 100};
  const ConsumerRing ring{.spec = kLarge};
  std::jthread producing(
      [&](const std::stop_token& stop) { serve(endpoint(), !GetParam(), 0, stop, kLarge); });
  std::uint64_t expected = 0;
  for (int i = 0; i < 3; ++i) {
    RunningConsumer consumer(ends(), 20s, {}, ring);
    const std::uint64_t first = consumer.next().value();
    const std::uint64_t lost = (first + kNumbers - expected) % kNumbers;
    EXPECT_LE(lost, static_cast<std::uint64_t>(consumer.outside_reserve()) + ring.slots);
    for (std::uint64_t k = 1; k < 30; ++k) ASSERT_EQ(consumer.next(), (first + k) % kNumbers);
    expected = (first + 30) % kNumbers;
  }
}

TEST_F(ZmqConsume, AProducerThatStaysIsNotDisturbedByOthersThatLeave) {
  RunningConsumer consumer("endpoint=" + endpoint());
  std::jthread staying([&](const std::stop_token& stop) { serve(endpoint(), false, 0, stop); });
  for (int i = 0; i < 5; ++i) {
    std::jthread leaving([&] {  // without an end message, and in the middle of a transfer
      Producer producer(endpoint(), false);
      producer.abandon();
      for (int k = 0; k < 5; ++k) producer.try_send(message_of(kSmall, 0));
    });
    for (int k = 0; k < 50; ++k) ASSERT_TRUE(consumer.next().has_value());
  }
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_rejected"), 0);
}

}  // namespace
}  // namespace penstock
