// SPDX-License-Identifier: Apache-2.0
// Both ends: a feeder's ring through a Sender and a socket into zmq-consume.
#include "tests/feeders/remote/sender_fixture.h"

#include <atomic>
#include <cmath>

#include "feeders/remote/send/frame_memory.h"
#include "tests/feeders/remote/zmq_fixture.h"
#include "tests/support/patience.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// The parameter: does the consumer bind?
class ZmqEnds : public SenderTest, public ::testing::WithParamInterface<bool> {};

TEST_P(ZmqEnds, EveryBatchOfAFiniteFeederArrivesOnce) {
  const bool consumer_binds = GetParam();
  constexpr std::uint64_t kBatches = 25;
  std::optional<Consumer> consumer;
  std::optional<Server> server;
  const auto consume = [&] {
    consumer.emplace("endpoint=" + endpoint_ + ",bind=" + (consumer_binds ? "true" : "false"));
    consumer->start();
  };
  if (consumer_binds) consume();
  server.emplace(endpoint_, !consumer_binds, Way::push);
  if (!consumer_binds) consume();
  server->feed(0, kBatches);
  std::jthread sending([&] {
    server->run(kForEver);
    server.reset();  // sent messages arrive although the sender is gone
  });
  for (std::uint64_t i = 0; i < kBatches; ++i) EXPECT_EQ(consumer->next(), i);
}

INSTANTIATE_TEST_SUITE_P(Binds, ZmqEnds, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Consumer" : "Server"; });

TEST_F(SenderTest, SlotsThatAreFilledOnceKeepTheirLabels) {
  RunningConsumer consumer("endpoint=" + endpoint_);
  Server server(endpoint_, false, Way::push, 3);
  server.feed_constant();
  std::jthread sending([&] { server.run({.batches = 30, .timeout = 20s}); });
  for (int i = 0; i < 30; ++i) {
    const std::optional<std::uint64_t> index = consumer.next();
    ASSERT_TRUE(index.has_value());
    EXPECT_LT(*index, 3U);
  }
  sending.join();
  EXPECT_EQ(server.counter("batches_sent"), 30);
  EXPECT_EQ(server.counter("bytes_sent"),
            static_cast<std::int64_t>(30 * remote::BatchLayout(kSmall, kSmall.images).size()));
}

TEST_F(SenderTest, NoConsumerIsATimeout) {
  Server server(endpoint_, true, Way::push);
  WriteLease lease = server.ring().acquire({});
  std::move(lease).publish();
  try {
    server.run({.timeout = 200ms});
    FAIL() << "nobody is there";
  } catch (const TimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find("no consumer ever connected"), std::string::npos)
        << error.what();
  }
  EXPECT_GE(server.counter("send_wait_ns"), 200'000'000) << "a wait that came to nothing counts";
}

TEST_F(SenderTest, AStopEndsTheWaitForAConsumerAtOnce) {
  EXPECT_TRUE(is_prompt(500ms, [&] {
    Server server(endpoint_, true, Way::push);
    for (int i = 0; i < 3; ++i) {
      WriteLease lease = server.ring().acquire({});
      std::move(lease).publish();
    }
    std::stop_source stop;
    std::jthread sending([&] { server.run(kForEver, stop.get_token()); });
    const auto asked = std::chrono::steady_clock::now();
    stop.request_stop();
    sending.join();
    return std::chrono::steady_clock::now() - asked;
  }));
}

TEST_F(SenderTest, TheFeedersFailureIsRethrown) {
  Server server(endpoint_, true, Way::push);
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
  RunningConsumer consumer("endpoint=" + endpoint_);
  std::jthread draining([&] {
    for (std::size_t i = 0; i < kBatches; ++i) EXPECT_EQ(consumer.next(), i);
  });
  remote::Sender push(
      remote::make_ring_supply(
          ring, remote::make_outgoing(remote::MessageFormat::zmq_op, kSmall, clock), clock, probe),
      net::parse_endpoint(endpoint_),
      {.role = remote::ZmqSocketOptions::Role::push, .bind = false, .hwm = 2}, clock, probe);
  const Time start = clock.now();
  push.run({.img_per_s = 7, .timeout = std::chrono::hours(1000)}, {});
  ASSERT_GE(clock.deadlines.size(), kBatches);
  for (std::size_t i = 0; i < kBatches; ++i) {
    const double due = static_cast<double>((i + 1) * static_cast<std::size_t>(kSmall.images)) / 7;
    EXPECT_EQ((clock.deadlines[i] - start).count(), std::llround(due * 1e9)) << i;
  }
}

TEST_F(SenderTest, ARateIsNotExceeded) {
  RunningConsumer consumer("endpoint=" + endpoint_);
  Server server(endpoint_, false, Way::push);
  std::jthread feeding([&](const std::stop_token& stop) {
    while (WriteLease lease = server.ring().acquire(stop)) {
      fill_closed_form(lease.batch(), kSmall, 0);
      std::move(lease).publish();
    }
  });
  std::jthread draining([&] {
    for (int i = 0; i < 11; ++i) consumer.next();
  });
  const auto started = std::chrono::steady_clock::now();
  server.run({.batches = 11, .img_per_s = 400, .timeout = 20s});
  // At least ten intervals of four images.
  EXPECT_GE(std::chrono::steady_clock::now() - started, 100ms);
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
        return contains(text, "100 messages came; 4 of 4 connections of producers have ended");
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
