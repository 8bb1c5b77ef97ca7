// SPDX-License-Identifier: Apache-2.0
// zmq-consume with several endpoints, and with threads of the same process.
#include <fmt/format.h>

#include <set>

#include "feeders/remote/receive/consume_plan.h"
#include "tests/feeders/remote/zmq_fixture.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class ZmqEndpoints : public ZmqConsume {
 protected:
  std::string at(const std::string& name) const {
    return "ipc://" + folder_.path().string() + "/" + name;
  }
};

TEST_F(ZmqEndpoints, BatchesOfAllArriveOnceAndEachProducersInItsOrder) {
  RunningConsumer consumer("endpoint=" + at("a") + "+" + at("b"));
  Producer to_a(at("a"), false), to_b(at("b"), false);
  const auto push = [](Producer& producer, std::uint64_t first) {
    for (std::uint64_t i = 0; i < 12; ++i) producer.send(message_of(kSmall, first + i));
  };
  const std::jthread a([&] { push(to_a, 0); }), b([&] { push(to_b, 12); });
  std::uint64_t next_of_a = 0, next_of_b = 12;
  for (int i = 0; i < 24; ++i) {
    const std::uint64_t index = consumer.next().value();
    EXPECT_EQ(index, index < 12 ? next_of_a : next_of_b);
    ++(index < 12 ? next_of_a : next_of_b);
  }
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_received"), 24);
  EXPECT_TRUE(consumer.notes().empty());
}

TEST_F(ZmqEndpoints, EachSaysWhetherItIsBoundWhereItIsNotAsTheOptionSays) {
  Producer binding(at("b"), true);
  RunningConsumer consumer("endpoint=" + at("a") + "+connect:" + at("b") + "+bind:" + at("c"));
  Producer to_a(at("a"), false), to_c(at("c"), false);
  to_a.send(message_of(kSmall, 1));
  binding.send(message_of(kSmall, 2));
  to_c.send(message_of(kSmall, 3));
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 3; ++i) seen.insert(consumer.next().value());
  EXPECT_EQ(seen, (std::set<std::uint64_t>{1, 2, 3}));
}

TEST_F(ZmqEndpoints, NoneWaitsBehindAnother) {
  const std::string busy = inside_endpoint("busy"), calm = inside_endpoint("calm");
  Consumer consumer("endpoint=" + busy + "+" + calm);
  InsideProducer many(busy), few(calm);
  for (std::uint64_t i = 0; i < 7; ++i) many.send(message_of(kSmall, i));
  for (std::uint64_t i = 0; i < 3; ++i) few.send(message_of(kSmall, 10 + i));
  consumer.start();
  for (const std::uint64_t index : {0, 10, 1, 11, 2, 12, 3, 4, 5, 6}) {
    EXPECT_EQ(consumer.next(), index);
  }
}

TEST_F(ZmqEndpoints, MoreThanTwoTakeTurnsWhileAllAreFull) {
  std::string endpoints;
  std::vector<InsideProducer> producers;
  std::vector<std::string> names;
  for (const char* name : {"a", "b", "c", "d"}) names.push_back(inside_endpoint(name));
  for (const std::string& name : names) endpoints += (endpoints.empty() ? "" : "+") + name;
  Consumer consumer("endpoint=" + endpoints);
  for (std::uint64_t i = 0; i < names.size(); ++i) {
    InsideProducer& producer = producers.emplace_back(names[i]);
    for (std::uint64_t k = 0; k < 5; ++k) producer.send(message_of(kSmall, 4 * k + i));
  }
  consumer.start();
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(consumer.next(), i);
}

TEST_F(ZmqEndpoints, BadMessagesAreNamedWithTheirEndpoint) {
  RunningConsumer consumer("endpoint=" + at("a") + "+" + at("b"));
  Producer to_a(at("a"), false), to_b(at("b"), false);
  to_b.send(rubbish());
  to_b.send(message_of(kSmall, 1));
  EXPECT_EQ(consumer.next(), 1U);
  ASSERT_EQ(consumer.notes().size(), 1U);
  EXPECT_TRUE(says(consumer.notes()[0], " at " + at("b") + " refused: "));
}

TEST_F(ZmqEndpoints, OnlyWhoSendsBadOnesInARowIsCutOff) {
  RunningConsumer consumer("endpoint=" + at("a") + "+" + at("b"));
  Producer to_a(at("a"), false), to_b(at("b"), false);
  to_a.send(message_of(kSmall, 0));
  EXPECT_EQ(consumer.next(), 0U);
  for (int i = 0; i < 8; ++i) to_b.send(rubbish());
  while (consumer.counter("messages_rejected") < 8) std::this_thread::yield();
  to_a.send(message_of(kSmall, 1));
  EXPECT_EQ(consumer.next(), 1U);
  EXPECT_EQ(consumer.counter("producers_cut_off"), 1);
}

TEST_F(ZmqEndpoints, SilenceNamesEachAndWhatIsKnownOfIt) {
  std::string text, within;
  EXPECT_TRUE(with_patience([&](std::chrono::milliseconds timeout) {
    Consumer consumer("endpoint=" + at("a") + "+connect:" + at("b"), timeout);
    Producer producer(at("a"), false);
    producer.send(message_of(kSmall, 0));
    consumer.start();
    if (!comes(consumer, 0)) return false;
    text = thrown_by<TimeoutError>([&] { consumer.next(); });
    within = fmt::format(" within {:.3g} s", 1e-3 * static_cast<double>(timeout.count()));
    return true;
  }));
  for (const std::string& part :
       {"any of 2 endpoints" + within,
        at("a") + " (this side binds): 1 messages came; a producer is connected but silent",
        at("b") + " (this side connects): no producer ever connected"}) {
    EXPECT_TRUE(says(text, part));
  }
}

TEST_F(ZmqEndpoints, EndpointsWithoutMessagesAreReportedAtTheEnd) {
  RunningConsumer consumer("endpoint=" + at("a") + "+" + at("b"));
  Producer producer(at("b"), false);
  producer.send(message_of(kSmall, 0));
  EXPECT_EQ(consumer.next(), 0U);
  consumer.stop();
  ASSERT_EQ(consumer.notes().size(), 1U);
  EXPECT_TRUE(says(consumer.notes()[0], "received nothing at " + at("a")));
  EXPECT_TRUE(says(consumer.notes()[0], "no producer ever connected"));
}

TEST_F(ZmqEndpoints, APlusPartsTwoOnlyWhereOneBegins) {
  const auto texts_of = [](const std::string& text) {
    std::vector<std::string> texts;
    for (const remote::ConsumeEndpoint& part : remote::parse_endpoints(text, true)) {
      texts.push_back((part.bind ? "b " : "c ") + part.endpoint.text);
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts_of("ipc:///tmp/a+b"), (Texts{"b ipc:///tmp/a+b"}));
  EXPECT_EQ(texts_of("ipc://a+b+connect:tcp://10.0.0.7:55+ipc://@c"),
            (Texts{"b ipc://a+b", "c tcp://10.0.0.7:55", "b ipc://@c"}));
  EXPECT_EQ(texts_of("bind:ipc://a+inproc://b"), (Texts{"b ipc://a", "b inproc://b"}));
  EXPECT_EQ(
      parse_component("zmq-consume:endpoint=ipc://a+connect:tcp://h:55,hwm=3").values[0].second,
      "ipc://a+connect:tcp://h:55");
}

TEST_F(ZmqEndpoints, InvalidEndpointsAreRefused) {
  const auto error_of = [](const std::string& text) {
    return thrown_by<ConfigError>([&] { remote::parse_endpoints(text, true); });
  };
  EXPECT_TRUE(says(error_of("ipc://a+ipc://a"), "ipc://a twice"));
  EXPECT_TRUE(says(error_of("bind:ipc://a+connect:ipc://a"), "ipc://a twice"));
  EXPECT_TRUE(says(error_of("ipc://a+tcp://host"), "'tcp://host' has no port"));
  EXPECT_TRUE(says(error_of("bind:connect:ipc://a"), "an unsupported transport"));
  EXPECT_TRUE(says(error_of(""), "an unsupported transport"));
  std::string many = "ipc://x";
  for (int i = 0; i < 64; ++i) many += "+ipc://" + std::to_string(i);
  EXPECT_TRUE(says(error_of(many), "65; expected at most 64"));
}

TEST_F(ZmqEndpoints, LocalhostIsAnAddressForTheSideThatListensToo) {
  EXPECT_EQ(net::parse_endpoint("tcp://localhost:5555").text, "tcp://127.0.0.1:5555");
  RunningConsumer consumer("endpoint=tcp://localhost:*");
  EXPECT_TRUE(says(consumer.all_notes(), "zmq-consume listens at tcp://127.0.0.1:"));
  EXPECT_TRUE(says(thrown_by<ConfigError>(
                       [] { RunningConsumer("endpoint=tcp://none.invalid:*,insecure=true"); }),
                   "'none.invalid' is no address of this machine"));
}

TEST_F(ZmqEndpoints, TheReserveCountsEach) {
  EXPECT_EQ(Consumer("endpoint=" + at("a") + "+" + at("b") + ",hwm=5").outside_reserve(), 24);
}

TEST_F(ZmqEndpoints, ThreadsOfThisProcessPushToo) {
  const std::string name = inside_endpoint("feed");
  RunningConsumer consumer("endpoint=" + name + "+" + at("a"));
  Producer outside(at("a"), false);
  const std::jthread pushing([&] {
    InsideProducer producer(name);
    for (std::uint64_t i = 0; i < 20; ++i) producer.send(message_of(kSmall, i));
    while (consumer.counter("messages_received") < 20) std::this_thread::yield();
  });
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(consumer.next(), i);
  outside.send(message_of(kSmall, 24));
  EXPECT_EQ(consumer.next(), 24U);
}

TEST_F(ZmqEndpoints, SilenceOfThreadsSaysSo) {
  RunningConsumer consumer("endpoint=" + inside_endpoint("feed"), 100ms);
  const std::string text = thrown_by<TimeoutError>([&] { consumer.next(); });
  EXPECT_TRUE(says(text, "no thread of this process sends batches; push some from a thread"));
}

TEST_F(ZmqEndpoints, BadMessagesOfThreadsAreCountedToo) {
  const std::string name = inside_endpoint("feed");
  Consumer consumer("endpoint=" + name);
  InsideProducer producer(name);
  for (int i = 0; i < 8; ++i) producer.send(rubbish());
  consumer.start();
  producer.send(message_of(kSmall, 1));
  EXPECT_EQ(consumer.next(), 1U);
  EXPECT_EQ(consumer.counter("messages_rejected"), 8);
}

TEST_F(ZmqEndpoints, ANameOfThreadsIsTakenOnce) {
  const std::string name = inside_endpoint("feed");
  Consumer first("endpoint=" + name);
  const std::string text = thrown_by<ConfigError>([&] { Consumer second("endpoint=" + name); });
  EXPECT_TRUE(says(text, "in use by another socket"));
}

}  // namespace
}  // namespace penstock
