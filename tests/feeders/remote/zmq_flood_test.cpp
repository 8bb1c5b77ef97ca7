// SPDX-License-Identifier: Apache-2.0
// Producers of much, of too much, and of nothing.
#include <gtest/gtest.h>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "feeders/remote/receive/zmq_socket.h"
#include "tests/feeders/remote/credit_fixture.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST(ZmqFlood, BatchesThatWaitEndNoConnection) {
  RunningConsumer consumer("endpoint=tcp://127.0.0.1:*,hwm=2");
  Producer producer(consumer.address(), false);
  const std::jthread sending([&] {  // more than a message may hold
    for (std::uint64_t i = 0; i < 10'000; ++i) producer.send(message_of(kSmall, i % 25));
  });
  for (std::uint64_t i = 0; i < 10'000; ++i) ASSERT_EQ(consumer.next(), i % 25);
  EXPECT_EQ(consumer.counter("producers_cut_off"), 0);
}

// ---- zmq mute ----------------------------------------------------------------

// libzmq silently ends the connection of a peer that sends too large a message. A peer that came
// and left without a message is named nevertheless, and so is one that returns.

constexpr const char* kWhy = "if a frame has more than max_message = 2000 bytes";

class ZmqMute : public ZmqConsume {};

TEST_F(ZmqMute, AProducerOfTooLargeMessagesIsNamed) {
  RunningConsumer consumer("endpoint=" + endpoint() + ",max_message=2kB");
  Producer bad(endpoint(), false);
  {
    // Whenever it is connected again, until the consumer saw it in time.
    const std::jthread sending([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) bad.try_send(std::vector<std::byte>(100'000));
    });
    EXPECT_TRUE(reaches(consumer, "producers_without_messages", 1));
  }
  bad.abandon();
  EXPECT_TRUE(says(consumer.all_notes(), " came to " + endpoint() + " and disconnected"));
  EXPECT_TRUE(says(consumer.all_notes(), kWhy));
  Producer good(endpoint(), false);
  good.send(message_of(kSmall, 4));
  EXPECT_EQ(consumer.next(), 4U);
}

TEST_F(ZmqMute, AProducerThatSentAMessageIsNotNamed) {
  RunningConsumer consumer("endpoint=" + endpoint());
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
  EXPECT_LE(consumer.counter("producers_without_messages"), strangers) << consumer.all_notes();
}

TEST_F(ZmqMute, ASocketThatMayNotSendHereIsNamedAsSuch) {
  RunningConsumer consumer("endpoint=" + endpoint());
  std::int64_t named = 0;
  for (const int kind : {ZMQ_PUB, ZMQ_REQ, ZMQ_ROUTER}) {
    zmq::context_t context;
    zmq::socket_t stranger(context, kind);
    stranger.set(zmq::sockopt::linger, 0);
    stranger.connect(endpoint());  // and again and again, by itself
    EXPECT_TRUE(reaches(consumer, "producers_without_messages", ++named)) << kind;
    named = consumer.counter("producers_without_messages");
  }
  EXPECT_TRUE(says(consumer.all_notes(), "it is not a PUSH socket of ZeroMQ"));
  EXPECT_FALSE(says(consumer.all_notes(), "max_message"));
}

TEST_F(ZmqMute, AProducerByCreditIsNamedWhenItComesBack) {
  RunningConsumer consumer("credit=2,endpoint=" + endpoint() + ",max_message=2kB");
  BareProducer producer(endpoint());
  producer.enter(2);
  producer.send({FrameBytes(100'000)});
  ASSERT_TRUE(reaches(consumer, "producers_lost", 1));
  producer.enter(2);  // libzmq has reconnected
  EXPECT_TRUE(says(consumer.all_notes(), "bare is back"));
  EXPECT_TRUE(says(consumer.all_notes(), kWhy));
  producer.send_batch(4);
  EXPECT_EQ(consumer.next(), 4U);
}

// ---- zmq socket --------------------------------------------------------------

// How sockets for feeding end.

/// libzmq aborts the process unless this is prevented.
TEST(ZmqSocketEnd, BothEndsMayCloseInTheMidstOfAMessage) {
  const TempFolder folder;
  const std::string endpoint = "ipc://" + folder.path().string() + "/feed";
  std::vector<std::byte> frame(3'000'000);
  for (int round = 0; round < 50; ++round) {
    zmq::context_t context;
    std::optional<zmq::socket_t> puller(std::in_place, context, ZMQ_PULL);
    puller->set(zmq::sockopt::linger, 0);
    puller->set(zmq::sockopt::rcvhwm, 1);
    puller->set(zmq::sockopt::rcvtimeo, 20'000);
    puller->bind(endpoint);
    std::optional<remote::ZmqSocket> pusher(
        std::in_place, net::parse_endpoint(endpoint),
        remote::ZmqSocketOptions{.role = remote::ZmqSocketOptions::Role::push, .bind = false});
    ASSERT_EQ(pusher->wait(20s, {}), remote::ZmqSocket::Wake::ready);
    zmq::socket_ref socket(zmq::from_handle, pusher->native());
    ASSERT_TRUE(socket.send(zmq::message_t(1), zmq::send_flags::none));
    ASSERT_TRUE(socket.send(zmq::message_t(1), zmq::send_flags::sndmore));
    ASSERT_TRUE(socket.send(zmq::buffer(frame), zmq::send_flags::none));
    zmq::message_t first;
    ASSERT_TRUE(puller->recv(first)) << "the large one is under way behind it";
    const std::jthread closing([&] { pusher.reset(); });
    puller.reset();
  }
}

}  // namespace
}  // namespace penstock
