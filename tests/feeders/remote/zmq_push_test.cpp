// SPDX-License-Identifier: Apache-2.0
// Both ends: a feeder's ring through ZmqPush and a socket into zmq-consume.
#include "feeders/remote/send/zmq_push.h"

#include <atomic>
#include <cmath>

#include "tests/feeders/remote/zmq_fixture.h"
#include "tests/support/patience.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// The sending side of a ring, connected to an endpoint.
class Server {
 public:
  Server(const std::string& endpoint, bool bind, std::size_t slots = 4)
      : ring_(kSmall, slots, memory_, MemoryKind::pinned, std::span(&reader_, 1), Order::relaxed,
              clock_),
        push_(ring_, net::parse_endpoint(endpoint),
              {.role = remote::ZmqSocketOptions::Role::push, .bind = bind, .hwm = 2}, clock_,
              probe_) {}

  void run(const remote::PushPlan& plan, std::stop_token stop) { push_.run(plan, std::move(stop)); }
  BatchRing& ring() { return ring_; }
  std::int64_t counter(const std::string& name) const { return probe_.values().at(name); }

 private:
  SteadyClock clock_;
  Probe probe_;
  HostDevice host_{clock_};
  remote::FrameMemory memory_{host_};
  Device* const reader_ = &memory_;
  BatchRing ring_;
  remote::ZmqPush push_;
};

constexpr remote::PushPlan kForEver{.timeout = 20s};

class ZmqPushTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  const std::string endpoint_ = "ipc://" + folder_.path().string() + "/feed";
};

/// The parameter: does the consumer bind?
class ZmqEnds : public ZmqPushTest, public ::testing::WithParamInterface<bool> {};

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
  server.emplace(endpoint_, !consumer_binds);
  if (!consumer_binds) consume();
  std::jthread feeding([&] {
    for (std::uint64_t i = 0; i < kBatches; ++i) {
      WriteLease lease = server->ring().acquire({});
      lease.await();
      fill_closed_form(lease.batch(), kSmall, i);
      std::move(lease).publish();
    }
    server->ring().close();
  });
  std::jthread sending([&] {
    server->run(kForEver, {});
    server.reset();  // sent messages arrive although the sender is gone
  });
  for (std::uint64_t i = 0; i < kBatches; ++i) EXPECT_EQ(consumer->next(), i);
}

INSTANTIATE_TEST_SUITE_P(Binds, ZmqEnds, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Consumer" : "Server"; });

TEST_F(ZmqPushTest, SlotsThatAreFilledOnceKeepTheirLabels) {
  Consumer consumer("endpoint=" + endpoint_);
  consumer.start();
  Server server(endpoint_, false, 3);
  std::jthread feeding([&](const std::stop_token& stop) {
    std::vector<bool> filled(3);
    while (WriteLease lease = server.ring().acquire(stop)) {
      const auto slot = static_cast<std::size_t>(lease.batch().slot);
      if (!filled[slot]) fill_closed_form(lease.batch(), kSmall, slot);
      filled[slot] = true;
      std::move(lease).publish();
    }
  });
  std::jthread sending([&] { server.run({.batches = 30, .timeout = 20s}, {}); });
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

TEST_F(ZmqPushTest, NoConsumerIsATimeout) {
  Server server(endpoint_, true);
  WriteLease lease = server.ring().acquire({});
  std::move(lease).publish();
  try {
    server.run({.timeout = 200ms}, {});
    FAIL() << "nobody is there";
  } catch (const TimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find("no consumer ever connected"), std::string::npos)
        << error.what();
  }
  EXPECT_GE(server.counter("send_wait_ns"), 200'000'000) << "a wait that came to nothing counts";
}

TEST_F(ZmqPushTest, AStopEndsTheWaitForAConsumerAtOnce) {
  EXPECT_TRUE(is_prompt(500ms, [&] {
    Server server(endpoint_, true);
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

TEST_F(ZmqPushTest, TheFeedersFailureIsRethrown) {
  Server server(endpoint_, true);
  server.ring().fail(std::make_exception_ptr(DataError("file 7 is damaged")));
  EXPECT_THROW(server.run(kForEver, {}), DataError);
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

TEST_F(ZmqPushTest, ARateIsThatOfTheClock) {
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
  Consumer consumer("endpoint=" + endpoint_);
  consumer.start();
  std::jthread draining([&] {
    for (std::size_t i = 0; i < kBatches; ++i) EXPECT_EQ(consumer.next(), i);
  });
  remote::ZmqPush push(ring, net::parse_endpoint(endpoint_),
                       {.role = remote::ZmqSocketOptions::Role::push, .bind = false, .hwm = 2},
                       clock, probe);
  const Time start = clock.now();
  push.run({.img_per_s = 7, .timeout = std::chrono::hours(1000)}, {});
  ASSERT_GE(clock.deadlines.size(), kBatches);
  for (std::size_t i = 0; i < kBatches; ++i) {
    const double due = static_cast<double>((i + 1) * static_cast<std::size_t>(kSmall.images)) / 7;
    EXPECT_EQ((clock.deadlines[i] - start).count(), std::llround(due * 1e9)) << i;
  }
}

TEST_F(ZmqPushTest, ARateIsNotExceeded) {
  Consumer consumer("endpoint=" + endpoint_);
  consumer.start();
  Server server(endpoint_, false);
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
  server.run({.batches = 11, .img_per_s = 400, .timeout = 20s}, {});
  // At least ten intervals of four images.
  EXPECT_GE(std::chrono::steady_clock::now() - started, 100ms);
}

}  // namespace
}  // namespace penstock
