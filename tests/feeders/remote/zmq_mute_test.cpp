// SPDX-License-Identifier: Apache-2.0
// libzmq silently ends the connection of a peer that sends too large a message. A peer that came
// and left without a message is named nevertheless, and so is one that returns.
#include <unistd.h>

#include "tests/feeders/remote/credit_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr const char* kWhy = "if a frame has more than max_message = 2000 bytes";

class ZmqMute : public ZmqConsume {};

TEST_F(ZmqMute, AProducerOfTooLargeMessagesIsNamed) {
  Consumer consumer("endpoint=" + endpoint() + ",max_message=2kB");
  consumer.start();
  Producer bad(endpoint(), false);
  {
    // Whenever it is connected again, until the consumer saw it in time.
    const std::jthread sending([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) bad.try_send(std::vector<std::byte>(100'000));
    });
    EXPECT_TRUE(reaches(consumer, "producers_without_messages", 1));
  }
  bad.abandon();
  EXPECT_TRUE(contains(all_notes(consumer), " came to " + endpoint() + " and disconnected"));
  EXPECT_TRUE(contains(all_notes(consumer), kWhy)) << all_notes(consumer);
  Producer good(endpoint(), false);
  good.send(message_of(kSmall, 4));
  EXPECT_EQ(consumer.next(), 4U);
}

TEST_F(ZmqMute, WhoSentAMessageIsNot) {
  Consumer consumer("endpoint=" + endpoint());
  consumer.start();
  for (std::uint64_t i = 0; i < 20; ++i) {
    Producer producer(endpoint(), false);
    producer.send(message_of(kSmall, i));
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(consumer.next().has_value());
  // One that sends nothing is named; by then all earlier peers have been judged.
  std::int64_t strangers = 0;
  EXPECT_TRUE(await([&] {
    ++strangers;
    Producer(endpoint(), false).await_peer();
    return consumer.counter("producers_without_messages") > 0;
  }));
  EXPECT_LE(consumer.counter("producers_without_messages"), strangers) << all_notes(consumer);
}

TEST_F(ZmqMute, AProducerByCreditIsNamedWhenItComesBack) {
  Consumer consumer("credit=2,endpoint=" + endpoint() + ",max_message=2kB");
  consumer.start();
  BareProducer producer(endpoint());
  producer.enter(2);
  producer.send({FrameBytes(100'000)});
  ASSERT_TRUE(reaches(consumer, "producers_lost", 1));
  producer.enter(2);  // libzmq has reconnected
  EXPECT_TRUE(contains(all_notes(consumer), "bare is back")) << all_notes(consumer);
  EXPECT_TRUE(contains(all_notes(consumer), kWhy)) << all_notes(consumer);
  producer.send_batch(4);
  EXPECT_EQ(consumer.next(), 4U);
}

}  // namespace
}  // namespace penstock
