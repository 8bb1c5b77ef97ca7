// SPDX-License-Identifier: Apache-2.0
// zmq-consume with several receiver threads, and its limit for waiting messages.
#include <array>

#include "feeders/remote/receive/receiver_threads.h"
#include "tests/feeders/remote/zmq_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr auto kPrompt = 500ms;
/// Batches with different numbers.
constexpr std::uint64_t kNumbers = 25;

class ZmqReceivers : public ZmqConsume {
 protected:
  std::string several() const { return "endpoint=" + endpoint() + ",receivers=4"; }
};

TEST_F(ZmqReceivers, EveryBatchOfAllProducersArrivesOnce) {
  constexpr int kProducers = 3, kRounds = 8;
  const std::string second = "ipc://" + file() + "2";
  RunningConsumer consumer("endpoint=" + endpoint() + "+" + second + ",receivers=4", 20s, {},
                           {.slots = 6});
  // When a connection ends, a full libzmq socket drops its unread messages, so the producers stay.
  std::array<Producer, kProducers> producers{
      {{second, false}, {endpoint(), false}, {endpoint(), false}}};
  std::vector<std::jthread> pushing;
  for (Producer& producer : producers) {
    pushing.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        for (std::uint64_t i = 0; i < kNumbers; ++i) producer.send(message_of(kSmall, i));
      }
    });
  }
  std::array<int, kNumbers> seen{};
  for (std::uint64_t i = 0; i < kNumbers * kProducers * kRounds; ++i) {
    ++seen.at(consumer.next().value());
  }
  for (const int times : seen) EXPECT_EQ(times, kProducers * kRounds);
  consumer.stop();
  EXPECT_EQ(consumer.counter("images_received"), 4 * 25 * kProducers * kRounds);
  EXPECT_EQ(consumer.stage(0).stage.threads, 4);
  EXPECT_EQ(consumer.stage(1).items.value(), 25 * kProducers * kRounds);
}

TEST_F(ZmqReceivers, InStrictOrderBatchesComeInOrderOfArrival) {
  constexpr std::uint64_t kBatches = 300;
  RunningConsumer consumer(several(), 20s, {}, {.slots = 6, .order = Order::strict});
  Producer producer(endpoint(), false);  // outlives what it sends
  const std::jthread pushing([&] {
    for (std::uint64_t i = 0; i < kBatches; ++i) {
      if (i % 7 == 3) producer.send(rubbish());
      producer.send(message_of(kSmall, i % kNumbers));
    }
  });
  for (std::uint64_t i = 0; i < kBatches; ++i) EXPECT_EQ(consumer.next(), i % kNumbers);
}

TEST_F(ZmqReceivers, InStrictOrderAFailureComesAfterGoodBatches) {
  RunningConsumer consumer(several(), 20s, {BadSamplePolicy::Action::fail},
                           {.slots = 6, .order = Order::strict});
  Producer producer(endpoint(), false);
  for (std::uint64_t i = 0; i < 4; ++i) producer.send(message_of(kSmall, i));
  producer.send(rubbish());
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(consumer.next(), i);
  EXPECT_TRUE(says(thrown_by<DataError>([&] { consumer.next(); }), "message 5"));
}

TEST_F(ZmqReceivers, SilenceEndsAllOfThem) {
  EXPECT_TRUE(is_prompt(kPrompt, [&] {
    RunningConsumer consumer(several(), 200ms, {}, {.slots = 6});
    EXPECT_TRUE(says(thrown_by<TimeoutError>([&] { consumer.next(); }), "within 0.2 s"));
    return consumer.stop();
  }));
}

TEST_F(ZmqReceivers, AStopEndsAllOfThemAtOnce) {
  EXPECT_TRUE(is_prompt(kPrompt, [&] {
    RunningConsumer waiting(several(), 20s, {}, {.slots = 6});
    return waiting.stop();
  }));
  const std::string name = inside_endpoint("feed");
  EXPECT_TRUE(is_prompt(kPrompt, [&] {
    Consumer full("endpoint=" + name + ",receivers=4");  // more receivers than slots
    InsideProducer producer(name);
    for (std::uint64_t i = 0; i < 8; ++i) producer.send(message_of(kSmall, i));
    full.start();
    EXPECT_TRUE(full.next().has_value());
    return full.stop();
  }));
}

TEST_F(ZmqReceivers, TheEndOfTheirProducersProcessEndsAllOfThem) {
  Consumer consumer(several() + ",producer='true'", 20s, {}, {.slots = 6});
  Producer producer(endpoint(), false);
  for (std::uint64_t i = 0; i < 5; ++i) producer.send(message_of(kSmall, i));
  consumer.start();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(consumer.next().has_value());
  EXPECT_EQ(consumer.next(), std::nullopt);
}

TEST_F(ZmqReceivers, TheBufferSetsTheHighWaterMark) {
  const std::size_t batch = message_of(kSmall, 0).size();
  const Consumer consumer("endpoint=" + endpoint() + ",buffer=" + std::to_string(10 * batch + 9));
  EXPECT_EQ(consumer.outside_reserve(), 18);
  EXPECT_EQ(consumer.note_of_waiting(),
            "up to 18 batches (72 images, " + std::to_string(18 * batch) +
                " bytes) of each producer wait outside the ring: 8 in its socket if it has the "
                "same hwm, 1 in transit, 1 being received, 8 in this socket");
  EXPECT_EQ(consumer.counter("receive_bound_bytes"),
            10 * static_cast<std::int64_t>(4 * batch + (64 << 10)));
}

TEST_F(ZmqReceivers, EachReceiverHasABuffer) {
  const std::string batches = std::to_string(10 * message_of(kSmall, 0).size());
  const Consumer consumer(several() + ",buffer=" + batches);
  EXPECT_EQ(consumer.outside_reserve(), 2 * 5 + 2);
}

TEST_F(ZmqReceivers, InvalidBuffersAreRefused) {
  const std::size_t batch = message_of(kSmall, 0).size();
  const auto error_of = [&](const std::string& options) {
    return thrown_by<ConfigError>([&] { Consumer("endpoint=" + endpoint() + options); });
  };
  EXPECT_TRUE(says(error_of(",hwm=4,buffer=1MB"), "keep one"));
  EXPECT_TRUE(says(error_of(",buffer=" + std::to_string(3 * batch - 1)),
                   "expected at least " + std::to_string(3 * batch) + " bytes"));
  EXPECT_TRUE(says(error_of(",receivers=2,buffer=1kB"), "for 4 batches"));
  EXPECT_TRUE(says(error_of(",receivers=0"), "receivers is 0; expected 1 to 256"));
}

TEST_F(ZmqReceivers, NoMoreWaitsThanTheNoteSays) {
  // Larger than the kernel's buffers of a connection.
  constexpr BatchSpec kLarge{.images = 4, .image = {400, 400, 3}, .classes = 100};
  const std::vector<std::byte> message = message_of(kLarge, 0);
  const Consumer consumer(
      "endpoint=" + endpoint() + ",buffer=" + std::to_string(5 * message.size()), 20s, {},
      {.spec = kLarge});
  zmq::context_t context;
  zmq::socket_t producer(context, ZMQ_PUSH);
  producer.set(zmq::sockopt::linger, 0);
  producer.set(zmq::sockopt::sndhwm, 3);
  producer.set(zmq::sockopt::sndtimeo, 300);
  producer.connect(endpoint());
  std::int64_t accepted = 0;
  while (producer.send(zmq::buffer(message), zmq::send_flags::none)) ++accepted;
  EXPECT_GE(accepted, 3);
  EXPECT_LE(accepted, consumer.outside_reserve());
}

TEST(RunTogether, TheFirstFailureEndsAllAndIsTheOne) {
  std::atomic<int> stopped{0};
  std::mutex mutex;
  std::condition_variable_any never;
  std::atomic<int> number{0};
  const auto work = [&](const std::stop_token& stop) {
    if (number++ == 2) throw DataError("the third");
    std::unique_lock lock(mutex);
    never.wait(lock, stop, [] { return false; });
    ++stopped;
  };
  EXPECT_EQ(thrown_by<DataError>([&] { remote::run_together(4, {}, work); }), "the third");
  EXPECT_EQ(stopped, 3);
}

TEST(Turns, ComeInOrderWhicheverThreadIsFirst) {
  constexpr std::int64_t kTurns = 2000;
  remote::Turns turns;
  std::atomic<std::int64_t> next{1};
  std::vector<std::int64_t> order;  // written by the receiver whose turn it is
  remote::run_together(4, {}, [&](const std::stop_token&) {
    for (std::int64_t number = next++; number <= kTurns; number = next++) {
      const remote::Turn turn(turns, number);
      if (number % 5 == 0) continue;  // gave up: the turn is passed on in order
      turn.await();
      order.push_back(number);
    }
  });
  ASSERT_EQ(order.size(), static_cast<std::size_t>(kTurns - kTurns / 5));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

}  // namespace
}  // namespace penstock
