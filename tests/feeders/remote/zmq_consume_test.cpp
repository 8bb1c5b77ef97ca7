// SPDX-License-Identifier: Apache-2.0
// The zmq-consume feeder with real sockets.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <fstream>
#include <memory>
#include <thread>

#include "feeders/remote/receive/zmq_socket.h"
#include "tests/feeders/remote/zmq_fixture.h"
#include "tests/support/reserved_port.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST_F(ZmqConsume, CountsWhatItReceivesAndUnpacksAndItsWaits) {
  RunningConsumer consumer("endpoint=" + endpoint());
  const auto waits = [&] {
    return consumer.stage(0).wait_in.until(std::chrono::steady_clock::now()).waits;
  };
  EXPECT_TRUE(await([&] { return waits() > 0; }));
  Producer producer(endpoint(), false);
  for (std::uint64_t i = 0; i < 3; ++i) {
    producer.send(message_of(kSmall, i));
    EXPECT_EQ(consumer.next(), i);
  }
  consumer.stop();
  const StageCounters &receive = consumer.stage(0), &unpack = consumer.stage(1);
  EXPECT_EQ(receive.stage, (StageName{"receive", "receiver", 1, StageRole::receives}));
  EXPECT_EQ(unpack.stage, (StageName{"unpack", "receiver", 1, StageRole::unpacks}));
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

TEST_F(ZmqConsume, ProducersOfTooLargeMessagesAreCutOffAndTheTimeoutSaysWhy) {
  std::string text;
  EXPECT_TRUE(with_patience([&](std::chrono::milliseconds timeout) {
    RunningConsumer consumer("endpoint=" + endpoint() + ",max_message=2kB", timeout);
    Producer producer(endpoint(), false);
    producer.abandon();
    producer.send(std::vector<std::byte>(100'000));
    text = thrown_by<TimeoutError>([&] { consumer.next(); });
    EXPECT_EQ(consumer.counter("messages_received"), 0);
    return says(text, "max_message = 2000 bytes");
  })) << text;
}

TEST_F(ZmqConsume, TheSocketFileGoesWithTheFeeder) {
  Consumer consumer("endpoint=" + endpoint());
  EXPECT_TRUE(std::filesystem::exists(file()));
  consumer.destroy();
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(ZmqConsume, OneOfTwoThatBindAtTheSameMomentIsRefused) {
  for (int round = 0; round < 30; ++round) {
    std::barrier start(2), end(2);
    std::atomic<int> refused{0};
    const auto bind = [&] {
      start.arrive_and_wait();
      std::unique_ptr<remote::ZmqSocket> socket;
      try {
        socket = std::make_unique<remote::ZmqSocket>(net::parse_endpoint(endpoint()),
                                                     remote::ZmqSocketOptions{});
      } catch (const ConfigError& error) {
        EXPECT_TRUE(says(error.what(), "already in use"));
        ++refused;
      }
      end.arrive_and_wait();
    };
    { const std::jthread one(bind), other(bind); }
    EXPECT_EQ(refused, 1) << round;
  }
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

TEST_F(ZmqConsume, InvalidEndpointsAreRefusedWithTheReason) {
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

TEST_F(ZmqConsume, AnyAddressMayBeBoundIfTheUserAcceptsIt) {
  const ReservedPort port;
  RunningConsumer consumer("endpoint=tcp://0.0.0.0:" + port.text() + ",insecure");
  Producer producer("tcp://127.0.0.1:" + port.text(), false);
  producer.send(message_of(kSmall, 0));
  EXPECT_EQ(consumer.next(), 0U);
}

TEST_F(ZmqConsume, ItsReserveIsBothSocketsAndTwoBatchesInFlight) {
  EXPECT_EQ(Consumer("endpoint=" + endpoint() + ",hwm=5").outside_reserve(), 12);
}

}  // namespace
}  // namespace penstock
