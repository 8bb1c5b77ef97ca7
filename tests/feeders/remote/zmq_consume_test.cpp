// SPDX-License-Identifier: Apache-2.0
// The zmq-consume feeder with real sockets.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "tests/feeders/remote/zmq_fixture.h"
#include "tests/support/reserved_port.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Half the time that the contract allows for stopping.
constexpr auto kPrompt = 500ms;

std::vector<std::byte> text_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST_F(ZmqConsume, CountsWhatItReceivesAndUnpacksAndItsWaits) {
  RunningConsumer consumer("endpoint=" + endpoint());
  const auto waits = [&] {
    return consumer.stage(0).wait_in.until(std::chrono::steady_clock::now()).waits;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (waits() == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  Producer producer(endpoint(), false);
  for (std::uint64_t i = 0; i < 3; ++i) {
    producer.send(message_of(kSmall, i));
    EXPECT_EQ(consumer.next(), i);
  }
  consumer.stop();
  const StageCounters &receive = consumer.stage(0), &unpack = consumer.stage(1);
  EXPECT_EQ(receive.stage, (StageName{"receive", "receiver", 1}));
  EXPECT_EQ(unpack.stage, (StageName{"unpack", "receiver", 1}));
  for (const StageCounters* stage : {&receive, &unpack}) {
    EXPECT_EQ(stage->items.value(), 3);
    EXPECT_EQ(stage->timed_items.value(), 3);
    EXPECT_EQ(stage->images.value(), 3 * kSmall.images);
    EXPECT_GT(stage->wall_ns.value(), 0);
  }
  EXPECT_EQ(receive.bytes.value(), consumer.counter("bytes_received"));
  const auto now = std::chrono::steady_clock::now();
  EXPECT_GE(waits(), 1);
  EXPECT_GT(receive.wait_in.until(now).ns, 0);
  EXPECT_EQ(receive.wait_out.until(now).ns, 0);
  EXPECT_EQ(unpack.wait_in.until(now).ns, 0);
}

TEST_F(ZmqConsume, RubbishBetweenGoodMessagesIsCountedDescribedAndSkipped) {
  RunningConsumer consumer("endpoint=" + endpoint());
  Producer producer(endpoint(), false);
  BatchSpec larger = kSmall, smaller = kSmall;
  larger.images = 6;
  smaller.images = 3;
  const std::vector<std::byte> good = message_of(kSmall, 1);
  producer.send(message_of(kSmall, 0));
  producer.send(std::vector<std::byte>());
  producer.send(text_bytes("GET / HTTP/1.1"));
  producer.send(std::vector<std::byte>(good.begin(), good.end() - 1));
  producer.send(message_of(larger, 0));
  producer.send(message_of(smaller, 0));
  producer.send(good);
  producer.send(std::vector<std::byte>(5000, std::byte{0xff}));
  producer.send(message_of(kSmall, 2));
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(consumer.next(), i);
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_received"), 9);
  EXPECT_EQ(consumer.counter("messages_rejected"), 6);
  const std::vector<std::string> notes = consumer.notes();
  ASSERT_EQ(notes.size(), 6U);
  EXPECT_TRUE(says(notes[0], "message 2 of process "));
  EXPECT_TRUE(says(notes[0], "0 bytes"));
  EXPECT_TRUE(says(notes[1], "is the producer's format zmq_op?"));
  EXPECT_TRUE(says(notes[3], "uint8 [6,5,6,3]"));
  EXPECT_TRUE(says(notes[3], "; a run with --batch-size 6 takes it"));
  EXPECT_TRUE(says(notes[4], "uint8 [3,5,6,3]"));
}

TEST_F(ZmqConsume, EqualRefusalsAreNotedOnce) {
  RunningConsumer consumer("endpoint=" + endpoint());
  Producer producer(endpoint(), false);
  producer.send(message_of(kSmall, 0));
  BatchSpec larger = kSmall;
  larger.images = 6;
  for (int i = 0; i < 3; ++i) producer.send(message_of(larger, 0));
  producer.send(message_of(kSmall, 1));
  for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(consumer.next(), i);
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_rejected"), 3);
  EXPECT_EQ(consumer.notes().size(), 1U);
}

TEST_F(ZmqConsume, AFirstMessageThatNeverFitsEndsTheRunAtOnce) {
  Consumer consumer("endpoint=" + endpoint(), 20s);
  Producer producer(endpoint(), false);
  BatchSpec larger = kSmall;
  larger.images = 6;
  producer.send(message_of(larger, 0));
  consumer.start();
  EXPECT_TRUE(says(thrown_by<DataError>([&] { consumer.next(); }),
                   "a run with --batch-size 6 takes it; correct the producer, or skip such "
                   "messages with --on-bad-sample skip"));
}

TEST_F(ZmqConsume, MessagesOfSeveralFramesAreDrainedAndRefused) {
  RunningConsumer consumer("endpoint=" + endpoint());
  Producer producer(endpoint(), false);
  for (int frame = 0; frame < 4; ++frame) producer.send(message_of(kSmall, 9), true);
  producer.send(message_of(kSmall, 9));
  producer.send(message_of(kSmall, 1));
  EXPECT_EQ(consumer.next(), 1U);
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_rejected"), 1);
  ASSERT_EQ(consumer.notes().size(), 1U);
  EXPECT_TRUE(says(consumer.notes()[0], "5 frames"));
}

TEST_F(ZmqConsume, BadMessagesFailTheRunWhereThePolicySaysSo) {
  RunningConsumer consumer("endpoint=" + endpoint(), 20s, {BadSamplePolicy::Action::fail});
  Producer producer(endpoint(), false);
  producer.send(message_of(kSmall, 0));
  producer.send(text_bytes("rubbish"));
  EXPECT_EQ(consumer.next(), 0U);
  const std::string text = thrown_by<DataError>([&] { consumer.next(); });
  EXPECT_TRUE(says(text, "message 2"));
}

TEST_F(ZmqConsume, BadMessagesBeyondTheLimitFailTheRun) {
  RunningConsumer consumer("endpoint=" + endpoint(), 20s, {BadSamplePolicy::Action::skip, 1});
  Producer producer(endpoint(), false);
  producer.send(text_bytes("rubbish"));
  producer.send(message_of(kSmall, 0));
  producer.send(text_bytes("rubbish"));
  EXPECT_EQ(consumer.next(), 0U);
  EXPECT_TRUE(says(thrown_by<DataError>([&] { consumer.next(); }), "limit=1"));
}

TEST_F(ZmqConsume, NoProducerIsATimeoutThatNamesTheEndpointAndWhatToStart) {
  std::string text;
  EXPECT_TRUE(is_prompt(200ms + kPrompt, [&] {
    Consumer consumer("endpoint=" + endpoint(), 200ms);
    const auto started = std::chrono::steady_clock::now();
    consumer.start();
    text = thrown_by<TimeoutError>([&] { consumer.next(); });
    return std::chrono::steady_clock::now() - started;
  }));
  for (const std::string& part :
       {endpoint(), std::string("0.2 s"), std::string("this side binds"),
        std::string("no producer ever connected"), std::string("penstock serve --endpoint")}) {
    EXPECT_TRUE(says(text, part));
  }
}

TEST_F(ZmqConsume, SilenceAfterBatchesIsATimeoutToo) {
  EXPECT_TRUE(with_patience([&](std::chrono::milliseconds timeout) {
    Consumer consumer("endpoint=" + endpoint(), timeout);
    Producer producer(endpoint(), false);
    producer.send(message_of(kSmall, 0));
    consumer.start();
    if (!comes(consumer, 0)) return false;
    const std::string text = thrown_by<TimeoutError>([&] { consumer.next(); });
    EXPECT_TRUE(says(text, "a producer is connected but silent"));
    return true;
  }));
}

TEST_F(ZmqConsume, NothingButRubbishIsATimeoutThatDescribesIt) {
  std::string text;
  EXPECT_TRUE(with_patience([&](std::chrono::milliseconds timeout) {
    Consumer consumer("endpoint=" + endpoint(), timeout);
    Producer producer(endpoint(), false);
    producer.abandon();
    std::jthread sending([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) producer.try_send(text_bytes("rubbish"));
    });
    consumer.start();
    text = thrown_by<TimeoutError>([&] { consumer.next(); });
    return contains(text, "messages were refused, the last: message ");
  })) << text;
  EXPECT_TRUE(says(text, "no usable batch came over "));
}

TEST_F(ZmqConsume, ProducersOfTooLargeMessagesAreCutOffAndTheTimeoutSaysWhy) {
  std::string text;
  EXPECT_TRUE(with_patience([&](std::chrono::milliseconds timeout) {
    RunningConsumer consumer("endpoint=" + endpoint() + ",max_message=2kB", timeout);
    Producer producer(endpoint(), false);
    producer.abandon();
    producer.send(std::vector<std::byte>(100'000));
    text = thrown_by<TimeoutError>([&] { consumer.next(); });
    EXPECT_EQ(consumer.counter("messages_received"), 0);
    return contains(text, "max_message = 2000 bytes");
  })) << text;
}

TEST_F(ZmqConsume, AStopEndsTheWaitAtOnce) {
  EXPECT_TRUE(is_prompt(kPrompt, [&] {
    RunningConsumer consumer("endpoint=" + endpoint());
    Producer producer(endpoint(), false);
    producer.send(message_of(kSmall, 0));
    EXPECT_EQ(consumer.next(), 0U);  // the feeder waits for the next message
    const auto took = consumer.stop();
    EXPECT_EQ(consumer.next(), std::nullopt);
    return took;
  }));
}

TEST_F(ZmqConsume, AStopEndsAFullRingAtOnce) {
  EXPECT_TRUE(is_prompt(kPrompt, [&] {
    RunningConsumer consumer("endpoint=" + endpoint());
    Producer producer(endpoint(), false);
    for (std::uint64_t i = 0; i < 6; ++i) producer.send(message_of(kSmall, i));
    EXPECT_EQ(consumer.next(), 0U);
    return consumer.stop();
  }));
}

TEST_F(ZmqConsume, TheSocketFileGoesWithTheFeeder) {
  Consumer consumer("endpoint=" + endpoint());
  EXPECT_TRUE(std::filesystem::exists(file()));
  consumer.destroy();
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(ZmqConsume, AnEndpointInUseIsRefusedByItsNameBeforeAnythingStarts) {
  const ReservedPort port;
  const std::string endpoints[] = {endpoint(), "ipc://@penstock-test-" + std::to_string(getpid()),
                                   "tcp://127.0.0.1:" + port.text()};
  for (const std::string& used : endpoints) {
    Consumer first("endpoint=" + used);
    for (const std::string& others : {std::string(), "ipc://" + file() + "2+"}) {
      const std::string text =
          thrown_by<ConfigError>([&] { Consumer second("endpoint=" + others + used); });
      EXPECT_TRUE(says(text, "already in use"));
      EXPECT_TRUE(says(text, used));
    }
    Consumer free("endpoint=ipc://" + file() + "2");
    first.start();
    Producer producer(used, false);
    producer.send(message_of(kSmall, 4));
    EXPECT_EQ(first.next(), 4U) << "the first keeps its socket";
  }
}

TEST_F(ZmqConsume, TheSocketFileOfADeadProcessIsTakenOver) {
  const int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, file().data(), file().size());
  ASSERT_EQ(bind(dead, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(dead);
  ASSERT_TRUE(std::filesystem::exists(file()));
  RunningConsumer consumer("endpoint=" + endpoint());
  Producer producer(endpoint(), false);
  producer.send(message_of(kSmall, 0));
  EXPECT_EQ(consumer.next(), 0U);
}

TEST_F(ZmqConsume, AFileThatIsNoSocketIsLeftAlone) {
  std::ofstream(file()) << "precious";
  const std::string text = thrown_by<ConfigError>([&] { Consumer("endpoint=" + endpoint()); });
  EXPECT_TRUE(says(text, "not a socket"));
  EXPECT_TRUE(std::filesystem::is_regular_file(file()));
}

TEST_F(ZmqConsume, EndpointsThatCannotBeAreRefusedWithTheReason) {
  const auto error_of = [](const std::string& options) {
    return thrown_by<ConfigError>([&] { Consumer consumer(options); });
  };
  EXPECT_TRUE(says(error_of("endpoint=ipc:///tmp/" + std::string(200, 'x')), "at most 107"));
  EXPECT_TRUE(says(error_of("endpoint=ipc://" + folder_.path().string() + "/none/feed"), "folder"));
  EXPECT_TRUE(says(error_of("endpoint=inproc://feed"), "ipc://PATH"));
  EXPECT_TRUE(says(error_of("endpoint=tcp://127.0.0.1"), "no port"));
  EXPECT_TRUE(says(error_of("endpoint=tcp://127.0.0.1:70000"), "1 to 65535"));
  EXPECT_TRUE(says(error_of("endpoint=tcp://0.0.0.0:5555"), "insecure=true"));
  EXPECT_TRUE(says(error_of("endpoint=tcp://*:5555"), "insecure=true"));
  EXPECT_TRUE(says(error_of("endpoint=" + endpoint() + ",hwm=0"), "hwm is 0"));
  EXPECT_TRUE(says(error_of("endpoint=" + endpoint() + ",format=arrow"), "expected auto"));
  EXPECT_TRUE(says(error_of("endpoint=" + endpoint() + ",max_message=10"), "a batch has"));
}

TEST_F(ZmqConsume, AnyAddressMayBeBoundWhereTheUserAcceptsIt) {
  const ReservedPort port;
  RunningConsumer consumer("endpoint=tcp://0.0.0.0:" + port.text() + ",insecure");
  Producer producer("tcp://127.0.0.1:" + port.text(), false);
  producer.send(message_of(kSmall, 0));
  EXPECT_EQ(consumer.next(), 0U);
}

TEST_F(ZmqConsume, ItsReserveIsBothSocketsAndTwoOnTheWay) {
  EXPECT_EQ(Consumer("endpoint=" + endpoint() + ",hwm=5").outside_reserve(), 12);
}

}  // namespace
}  // namespace penstock
